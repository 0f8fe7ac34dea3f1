/* The native inference engine: the forward pass of a Transformer for search, on one core, without PyTorch. native.py
   compiles and calls it.

   `model_new` packs the matrices in float32, bfloat16 or int8. `init_search_state` encodes a batch of sentences and
   projects the keys and values of cross-attention; `decode_step` reads one more token per row and returns the best next
   tokens.
   Activations are float32. The order of operations on a row depends only on the row, so a translation does not depend
   on its batch. Inputs are not validated here, but in native.py.

   Letters: B sentences, S source tokens, R rows (partial hypotheses; in the encoder, source tokens), T target
   positions, D model dimension, H query heads, G key-value heads, K head dimension or best tokens, F feed-forward
   width, V vocabulary, P gathered and X banned tokens, I inputs and O outputs of a matrix. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef __AVX2__
#include <immintrin.h>
#elif defined __ARM_FEATURE_DOTPROD
#include <arm_neon.h>
#endif

/* Code that runs once: vector instructions would make it three times as large. */
#ifdef __clang__
#define SMALL
#else
#define SMALL __attribute__((optimize("no-tree-vectorize")))
#endif
#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 8")

/* LANES: numbers in a float32 vector. A tile of a product has ROWS rows of PANELS vectors of outputs; its sums fit in
   registers. */
#if defined __AVX512BW__
#define LANES 16
#define ROWS 6
#define PANELS 4
#elif defined __AVX__
#define LANES 8
#define ROWS 6
#define PANELS 2
#elif defined __aarch64__
#define LANES 4
#define ROWS 6
#define PANELS 4
#else
#define LANES 4
#define ROWS 4
#define PANELS 2
#endif
#define TILE (PANELS * LANES)

/* DOT_BYTES multiplies unsigned x by signed w, bytes, and adds each group of four products to an int32 sum. It exists
   only where one instruction does this. DOT_MAGNITUDES multiplies signed x by |w|: its first instruction adds pairs of
   products in 16 bits, where those of unsigned bytes above 127 would not fit. */
#if LANES == 16 && defined __AVX512VNNI__
#define DOT_BYTES(sums, x, w) _mm512_dpbusd_epi32((__m512i)(sums), (__m512i)(x), (__m512i)(w))
#elif LANES == 8 && defined __AVXVNNI__
#define DOT_BYTES(sums, x, w) _mm256_dpbusd_avx_epi32((__m256i)(sums), (__m256i)(x), (__m256i)(w))
#elif LANES == 16
#define DOT_MAGNITUDES(sums, x, w)                                                                                   \
    ((Ints)(sums) + (Ints)_mm512_madd_epi16(_mm512_maddubs_epi16(_mm512_abs_epi8((__m512i)(w)), (__m512i)(x)),       \
                                            _mm512_set1_epi16(1)))
#elif defined __AVX2__
#define DOT_MAGNITUDES(sums, x, w)                                                                                   \
    ((Ints)(sums) + (Ints)_mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)(w)), (__m256i)(x)),       \
                                            _mm256_set1_epi16(1)))
#endif

/* Intel's matrix unit (AMX) multiplies blocks of up to 16 rows by 16 units by 16 outputs. */
#if LANES == 16 && defined __AVX512VNNI__ && defined __AMX_BF16__ && defined __AMX_INT8__ && defined __linux__
#include <sys/syscall.h>
#include <unistd.h>
#define AMX 16
static int amx_enabled; /* set by `engine_init` */
#else
enum { amx_enabled = 0 };
#endif

/* Number of rows that pass through all layers together, and of logits per row that are computed together: the working
   set of a block fits in the L2 cache. */
#define BLOCK_ROWS 96
#define BLOCK_LOGITS 512
#define SCAN 128 /* number of logits whose maximum is compared with the worst of the k best */
#define SLAB (1 << 22) /* bytes */
#define PAGE (1 << 21) /* bytes of a huge page */

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t Bits __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef int8_t Bytes __attribute__((vector_size(4 * LANES)));
typedef uint16_t Bf16s __attribute__((vector_size(2 * LANES)));
typedef float Four __attribute__((vector_size(16)));

enum { FP32, BF16, INT8 }; /* a unit of 32 bits has 1 << type numbers */
enum { RELU, GELU, SILU, SWIGLU };
enum { NONE, SINUSOIDAL, CONCATENATED, MARIAN, LEARNED, ROTARY, ALIBI, T5 };
enum { ENCODER, DECODER };
enum { QKV, OUT, CROSS_Q, CROSS_KV, CROSS_OUT, UP, DOWN, MATRICES };
enum { CANDIDATE = QKV, GATE = OUT }; /* in the decoder of a recurrent model */
enum { SELF_NORM, CROSS_NORM, FFN_NORM, NORMS };

/* ---- numbers */

typedef union { float number; uint32_t bits; } Float;

INLINE uint32_t bits_of(float value) { return (Float){value}.bits; }

INLINE float from_bits(uint32_t bits) { return (Float){.bits = bits}.number; }

INLINE float load_scalar(const void *x, int64_t i, int bf16) {
    if (!bf16)
        return ((const float *)x)[i];
    return from_bits((uint32_t)((const uint16_t *)x)[i] << 16);
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
INLINE uint16_t to_bf16(float value) {
    uint32_t bits = bits_of(value);
    return (bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 64 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

INLINE void store_scalar(void *x, int64_t i, float value, int bf16) {
    if (bf16)
        ((uint16_t *)x)[i] = to_bf16(value);
    else
        ((float *)x)[i] = value;
}

INLINE Floats load(const void *x, int64_t i, int bf16) {
    Floats values;
    if (bf16) {
        Bf16s bits;
        memcpy(&bits, (const uint16_t *)x + i, sizeof bits);
        return (Floats)(__builtin_convertvector(bits, Bits) << 16);
    }
    memcpy(&values, (const float *)x + i, sizeof values);
    return values;
}

INLINE void store(float *x, Floats values) { memcpy(x, &values, sizeof values); }

/* e^x with an error of one or two units in the last place, in a form that compilers vectorize: 2^n * e^remainder,
   the latter by the polynomial of expf in the Cephes library. The argument is clamped to [-87, 88]. */
INLINE float exponential(float x) {
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = floorf(x * 1.44269504f + 0.5f);
    float remainder = x - n * 0.693359375f + n * 2.12194440e-4f;
    float sum = 1.9875691500e-4f;
    sum = sum * remainder + 1.3981999507e-3f;
    sum = sum * remainder + 8.3334519073e-3f;
    sum = sum * remainder + 4.1665795894e-2f;
    sum = sum * remainder + 1.6666665459e-1f;
    sum = sum * remainder + 5.0000001201e-1f;
    sum = sum * remainder * remainder + remainder + 1.0f;
    return sum * from_bits((uint32_t)((int32_t)n + 127) << 23);
}

/* Compilers vectorize neither sums, because they must keep the order, nor maxima, so these use vectors explicitly. */
INLINE float hsum(Floats lanes) {
    Four parts[LANES / 4];
    memcpy(parts, &lanes, sizeof lanes);
    for (int n = LANES / 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            parts[i] += parts[i + n];
    return (parts[0][0] + parts[0][2]) + (parts[0][1] + parts[0][3]);
}

INLINE float sum_of(const float *x, int64_t count) {
    Floats lanes = {0};
    float remainder = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        lanes += load(x, i, 0);
    for (; i < count; i++)
        remainder += x[i];
    return hsum(lanes) + remainder;
}

INLINE float dot(const float *q, const void *k, int64_t first, int64_t count, int bf16) {
    Floats lanes = {0};
    float remainder = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        lanes += load(q, i, 0) * load(k, first + i, bf16);
    for (; i < count; i++)
        remainder += q[i] * load_scalar(k, first + i, bf16);
    return hsum(lanes) + remainder;
}

/* The maximum; NaN if any number is NaN. */
INLINE float max_of(const float *x, int64_t count) {
    Floats maxima = {0};
    Bits nan = {0};
    float last = -INFINITY;
    int64_t i = 0;
    maxima += last;
    for (; i + LANES <= count; i += LANES) {
        Floats values = load(x, i, 0);
        Bits is_greater = (Bits)(values > maxima);
        maxima = (Floats)((is_greater & (Bits)values) | (~is_greater & (Bits)maxima));
        nan |= (Bits)(values != values);
    }
    for (; i < count; i++)
        last = x[i] > last || x[i] != x[i] ? x[i] : last;
    for (int j = 0; j < LANES; j++) {
        last = maxima[j] > last ? maxima[j] : last;
        last = nan[j] ? NAN : last;
    }
    return last;
}

INLINE int64_t round_up(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

/* In-place softmax of `count` scores; the buffer is padded to whole vectors, and the padding becomes zero. */
INLINE void softmax(float *scores, int64_t count) {
    int64_t size = round_up(count, LANES);
    for (int64_t i = count; i < size; i++)
        scores[i] = -INFINITY;
    float max = max_of(scores, size);
    for (int64_t i = 0; i < size; i++)
        scores[i] = exponential(scores[i] - max);
    for (int64_t i = count; i < size; i++)
        scores[i] = 0;
    float scale = 1 / sum_of(scores, size);
    for (int64_t i = 0; i < size; i++)
        scores[i] *= scale;
}

/* ---- operations that round as in Marian

   A calibrated model rounds its activations to integers, where a difference in the last bit may become one of 1/127. So
   these functions round each product and each sum, add in order, and use the functions of libm. */

#ifdef __clang__
#pragma clang fp contract(off)
#else
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif

enum { CHAINS = 8 }; /* sums that are computed at once, because each addition waits for the one before it */

/* The bias of a product whose x are in [0, 254] instead of [-127, 127]; `total` is the sum of the output's weights. */
static float calibrated_bias(float bias, float unit, int32_t total) { return bias - 127 * unit * (float)total; }

/* Adds a position to a scaled embedding. */
static void embed_at(int64_t dim, float scale, const float *position_D, float *x_D) {
    for (int64_t i = 0; i < dim; i++)
        x_D[i] = x_D[i] * scale + position_D[i];
}

/* All sines, then all cosines, of wavelengths from 2 pi to 10000 * 2 pi. */
static void marian_position(int64_t dim, int64_t position, float *row_D) {
    int64_t half = dim / 2;
    for (int64_t i = 0; i < half; i++) {
        float rate = powf(1e-4f, (float)i / (float)(half > 1 ? half - 1 : 1));
        float angle = (float)position * rate;
        row_D[i] = sinf(angle);
        row_D[half + i] = sinf(angle + 1.57079633f);
    }
}

static void normalize_in_order(
    int64_t rows, int64_t dim, float epsilon, const float *gain, const float *bias, const float *x_RD, float *out_RD
) {
    for (int64_t first = 0; first < rows; first += CHAINS) {
        const float *x_C[CHAINS];
        float sums[CHAINS] = {0}, squares[CHAINS] = {0}, means[CHAINS];
        for (int64_t j = 0; j < CHAINS; j++) /* repeats the last row */
            x_C[j] = x_RD + (first + j < rows ? first + j : rows - 1) * dim;
        for (int64_t i = 0; i < dim; i++)
            UNROLLED for (int j = 0; j < CHAINS; j++)
                sums[j] += x_C[j][i];
        for (int j = 0; j < CHAINS; j++)
            means[j] = sums[j] / (float)dim;
        for (int64_t i = 0; i < dim; i++)
            UNROLLED for (int j = 0; j < CHAINS; j++)
                squares[j] += (x_C[j][i] - means[j]) * (x_C[j][i] - means[j]);
        for (int64_t j = 0; j < CHAINS && first + j < rows; j++) {
            float deviation = sqrtf(squares[j] / (float)dim + epsilon);
            float *out = out_RD + (first + j) * dim;
            for (int64_t i = 0; i < dim; i++)
                out[i] = gain[i] * ((x_C[j][i] - means[j]) / deviation) + bias[i];
        }
    }
}

/* Attention of one query, with the arguments of `attend`. */
static void attend_in_order(
    const float *restrict q_K, int64_t width, const float *restrict k_KS, const float *restrict v_SK, int64_t count,
    int64_t size, int64_t padded_width, float *restrict weights_S, float *restrict out_K
) {
    float scale = 1 / sqrtf((float)width), max = -INFINITY, sum = 0;
    memset(weights_S, 0, size * 4);
    memset(out_K, 0, width * 4);
    for (int64_t i = 0; i < width; i++)
        for (int64_t s = 0; s < size; s++)
            weights_S[s] += q_K[i] * k_KS[i * size + s];
    for (int64_t s = 0; s < count; s++) {
        weights_S[s] *= scale;
        max = weights_S[s] > max ? weights_S[s] : max;
    }
    for (int64_t s = 0; s < count; s++) {
        weights_S[s] = expf(weights_S[s] - max);
        sum += weights_S[s];
    }
    for (int64_t s = 0; s < count; s++) {
        weights_S[s] /= sum;
        for (int64_t j = 0; j < width; j++)
            out_K[j] += weights_S[s] * v_SK[s * padded_width + j];
    }
    memset(weights_S + count, 0, (size - count) * 4);
}

/* Reads one token: c = f * previous + (1 - f) * candidate, out = ReLU(c), where f is the gate (Kim et al. 2019, section
   3). `previous_D` is null before the first token. */
static void recur(
    int64_t dim, const float *candidate_D, const float *gate_D, const float *previous_D, float *state_D, float *out_D
) {
    for (int64_t i = 0; i < dim; i++) {
        float previous = previous_D ? previous_D[i] : 0;
        float gate = 1 / (1 + expf(-gate_D[i]));
        float state = gate * previous + (1 - gate) * candidate_D[i];
        state_D[i] = state;
        out_D[i] = state < 0 ? 0 : state; /* keeps NaN */
    }
}

#ifdef __clang__
#pragma clang fp contract(fast)
#else
#pragma GCC pop_options
#endif

/* ---- memory */

/* A sanitizer sees only whole slabs of an arena. In a build with AddressSanitizer, all memory that is not allocated is
   poisoned, and a poisoned redzone follows each block: one float beyond a block is an error. See CONTRIBUTING.md. */
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define ASAN
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define ASAN
#endif
#ifdef ASAN
#include <sanitizer/asan_interface.h>
#define REDZONE 64
#else
#define REDZONE 0
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)0)
#endif

/* Memory that is allocated sequentially and freed all at once. `failed`: an allocation failed. */
typedef struct {
    char **slabs;
    int64_t *sizes, count, current, used;
    int failed;
} Arena;

/* Adds a slab for at least `bytes`. Returns 0 if out of memory. */
static int add_slab(Arena *a, int64_t bytes) {
    int64_t size = SLAB; /* doubled, so that a slightly larger batch fits into the slabs of the one before */
    while (size < bytes)
        size *= 2;
    char **slabs = realloc(a->slabs, (a->count + 1) * sizeof *slabs);
    if (!slabs)
        return 0;
    a->slabs = slabs;
    int64_t *sizes = realloc(a->sizes, (a->count + 1) * sizeof *sizes);
    if (!sizes)
        return 0;
    a->sizes = sizes;
    char *slab = aligned_alloc(PAGE, size);
    if (!slab)
        return 0;
#ifdef __linux__
    madvise(slab, size, MADV_HUGEPAGE); /* first accesses to small pages take as long as packing a model */
#endif
    ASAN_POISON_MEMORY_REGION(slab, size);
    a->slabs[a->count] = slab;
    a->sizes[a->count] = size;
    a->count++;
    a->used = 0;
    return 1;
}

static void *arena_alloc(Arena *a, int64_t bytes) {
    if (a->failed) /* callers check once, after several allocations */
        return 0;
    int64_t block_size = round_up(bytes, 64) + REDZONE;
    while (a->current < a->count && a->used + block_size > a->sizes[a->current]) {
        a->current++;
        a->used = 0;
    }
    if (a->current == a->count && !add_slab(a, block_size)) {
        a->failed = 1;
        return 0;
    }
    char *block = a->slabs[a->current] + a->used;
    a->used += block_size;
#ifdef ASAN
    ASAN_UNPOISON_MEMORY_REGION(block, bytes);
    memset(block, 0xff, bytes); /* NaN, so that results depend on numbers that were never written */
#endif
    return block;
}

static void arena_reset(Arena *a) {
    a->current = 0;
    a->used = 0;
    a->failed = 0;
    for (int64_t i = 0; i < a->count; i++)
        ASAN_POISON_MEMORY_REGION(a->slabs[i], a->sizes[i]);
}

static void arena_free(Arena *a) {
    for (int64_t i = 0; i < a->count; i++)
        free(a->slabs[i]);
    free(a->slabs), free(a->sizes);
}

/* ---- matrix products

   The layout of W is [O / LANES, units, LANES]; a unit is 32 bits of inputs that one instruction multiplies and adds:
   one float32, two bfloat16 or four int8. In int8, each output and each row of x has a scale; a calibrated model has
   the scales of its training instead, one for all rows of x. x is rounded to [-127, 127] and stored with an offset if
   the instruction requires unsigned numbers. */

typedef struct {
    int64_t inputs, outputs, units;
    int type;
    uint32_t *w;
    float *bias, *scale_O; /* padded to whole tiles, like W */
    int32_t *excess_O;     /* what the int32 sums of int8 are too high by */
    float multiplier;      /* of x in int8; 0: 127 divided by the largest magnitude of each row */
} Matrix;

#if defined DOT_BYTES
#define OFFSET 128
#define EXCESS(w) (OFFSET * (w))
#elif defined DOT_MAGNITUDES
#define OFFSET 0
#define EXCESS(w) ((w) < 0 ? (w) : 0)
#else
#define OFFSET 0
#define EXCESS(w) 0
#endif

static int64_t units_of(int64_t inputs, int type) {
    int64_t units = round_up(inputs, 1 << type) >> type;
#ifdef AMX
    return type == FP32 ? units : round_up(units, AMX);
#else
    return units;
#endif
}

INLINE int8_t quantized(float x) {
    float rounded = rintf(x);
    return (int8_t)(rounded > 127 ? 127 : rounded < -127 ? -127 : rounded);
}

/* A matrix [O, I] or a vector in float32, or a matrix in int8 with a scale for each row; missing: `values` is null. */
typedef struct { const void *values; const float *scale_O; } Weight;

/* Returns row `o` in float32. An int8 row is converted into `row`. */
__attribute__((noinline)) /* a copy in each caller would be large */
static const float *row_of(Weight w, int64_t o, int64_t inputs, float *row) {
    if (!w.scale_O)
        return (const float *)w.values + o * inputs;
    const int8_t *quantized_I = (const int8_t *)w.values + o * inputs;
    float scale = w.scale_O[o];
    for (int64_t i = 0; i < inputs; i++)
        row[i] = quantized_I[i] * scale;
    return row;
}

/* Copies some outputs of a matrix to a new one. */
static void select_outputs(Arena *arena, Matrix *to, const Matrix *from, const int32_t *outputs_C, int64_t count) {
    int64_t units = from->units, padded = round_up(count, TILE);
    *to = *from;
    to->outputs = count;
    to->w = arena_alloc(arena, padded * units * 4);
    to->bias = arena_alloc(arena, padded * 4);
    to->scale_O = arena_alloc(arena, padded * 4);
    to->excess_O = arena_alloc(arena, padded * 4);
    if (arena->failed)
        return;
    for (int64_t i = 0; i < padded; i++) {
        int64_t o = outputs_C[i < count ? i : 0]; /* the padding is not read */
        const uint32_t *w = from->w + o / LANES * units * LANES + o % LANES;
        uint32_t *copy = to->w + i / LANES * units * LANES + i % LANES;
        for (int64_t unit = 0; unit < units; unit++)
            copy[unit * LANES] = w[unit * LANES];
        to->bias[i] = from->bias[o];
        to->scale_O[i] = from->scale_O[o];
        to->excess_O[i] = from->excess_O[o];
    }
}

/* Converts x to the units of a matrix; in int8, the scales of the rows follow. */
__attribute__((noinline)) /* a copy in each caller would be large */
static const uint32_t *as_units(const Matrix *m, int64_t rows, const float *x_RI, uint32_t *units) {
    if (m->type == FP32)
        return (const uint32_t *)x_RI;
    int64_t inputs = m->inputs, row_units = m->units; /* copied, because stores of bytes may alias `*m` */
    float multiplier = m->multiplier;
    float *scale_R = (float *)(units + rows * row_units);
    for (int64_t r = 0; r < rows; r++) {
        const float *restrict x_I = x_RI + r * inputs;
        if (m->type == BF16) {
            uint16_t *restrict to = (uint16_t *)(units + r * row_units);
            for (int64_t i = 0; i < inputs; i++)
                to[i] = to_bf16(x_I[i]);
            for (int64_t i = inputs; i < 2 * row_units; i++)
                to[i] = 0;
            continue;
        }
        uint32_t max_bits = 0; /* bit patterns compare like magnitudes */
        for (int64_t i = 0; i < inputs; i++) {
            uint32_t magnitude = bits_of(x_I[i]) & 0x7fffffff;
            max_bits = magnitude > max_bits ? magnitude : max_bits;
        }
        float max_magnitude = from_bits(max_bits), inverse_scale = max_magnitude > 0 ? 127 / max_magnitude : 0;
        uint8_t *restrict to = (uint8_t *)(units + r * row_units);
        if (multiplier) {
            for (int64_t i = 0; i < inputs; i++)
                to[i] = (uint8_t)(quantized(x_I[i] * multiplier) + OFFSET);
            scale_R[r] = max_magnitude != max_magnitude ? max_magnitude : 1; /* keeps NaN */
        } else {
            for (int64_t i = 0; i < inputs; i++)
                to[i] = (uint8_t)((int32_t)rintf(x_I[i] * inverse_scale) + OFFSET);
            scale_R[r] = max_magnitude / 127;
        }
        for (int64_t i = inputs; i < 4 * row_units; i++)
            to[i] = OFFSET;
    }
    return units;
}

/* Divides weights by a scale; if it is 0, by the one with which they are in [-127, 127]. Returns the scale. */
__attribute__((noinline)) static float divide_by_scale(const float *w_I, int64_t count, float scale, float *restrict to) {
    if (!scale) {
        uint32_t max_bits = 0;
        for (int64_t i = 0; i < count; i++) {
            uint32_t magnitude = bits_of(w_I[i]) & 0x7fffffff;
            max_bits = magnitude > max_bits ? magnitude : max_bits;
        }
        scale = max_bits ? from_bits(max_bits) / 127 : 1;
    }
    for (int64_t i = 0; i < count; i++)
        to[i] = w_I[i] / scale;
    return scale;
}

/* `multipliers` are null, or in a calibrated model that of x, then that of each output's weights. */
SMALL static void pack(
    Arena *arena, Matrix *m, int64_t outputs, int64_t inputs, int type, Weight w, const float *bias_O,
    const float *multipliers
) {
    int64_t units = units_of(inputs, type), padded = round_up(outputs, TILE);
    *m = (Matrix){inputs, outputs, units, type, arena_alloc(arena, padded * units * 4), arena_alloc(arena, padded * 4),
                  arena_alloc(arena, padded * 4), arena_alloc(arena, padded * 4), multipliers ? multipliers[0] : 0};
    float *row = malloc(2 * inputs * sizeof *row), *scaled = row + inputs;
    uint32_t *row_units = calloc(units + 1, 4); /* and a scale, which is not used */
    arena->failed |= !row || !row_units;
    const uint32_t sign_bits = type == INT8 && OFFSET ? 0x80808080 : 0; /* weights have no offset */
    Matrix of_row = *m;
    of_row.multiplier = 1; /* of weights that are divided by their scale */
    for (int64_t o = 0; o < padded && !arena->failed; o++) {
        m->bias[o] = o < outputs && bias_O ? bias_O[o] : 0;
        m->scale_O[o] = 1;
        m->excess_O[o] = 0;
        uint32_t *to = m->w + o / LANES * units * LANES + o % LANES;
        if (o >= outputs) { /* padding */
            for (int64_t unit = 0; unit < units; unit++)
                to[unit * LANES] = 0;
            continue;
        }
        const float *w_I = row_of(w, o, inputs, row);
        if (type == INT8) {
            m->scale_O[o] = divide_by_scale(w_I, inputs, multipliers ? 1 / multipliers[1 + o] : 0, scaled);
            w_I = scaled;
        }
        const uint32_t *from = as_units(&of_row, 1, w_I, row_units);
        for (int64_t unit = 0; unit < units; unit++)
            to[unit * LANES] = from[unit] ^ sign_bits;
        if (type != INT8)
            continue;
        const uint8_t *values = (const uint8_t *)from;
        int32_t total = 0, excess = 0;
        for (int64_t i = 0; i < inputs; i++) {
            int32_t value = (int8_t)(values[i] - OFFSET);
            total += value;
            excess += EXCESS(value);
        }
        m->excess_O[o] = excess;
        if (multipliers) { /* as if x were in [0, 254]: (sum + 127 total) * scale + (bias - 127 * scale * total) */
            float unit = 1 / (multipliers[0] * multipliers[1 + o]);
            m->scale_O[o] = unit;
            m->excess_O[o] = excess - 127 * total;
            m->bias[o] = calibrated_bias(m->bias[o], unit, total);
        }
    }
    free(row), free(row_units);
}

INLINE Floats accumulate(Floats sums, uint32_t x, Bits w, int type) {
    Bits xs = x - (Bits){0};
    if (type == FP32)
        return sums + (Floats)xs * (Floats)w;
    if (type == BF16) {
#if LANES == 16 && defined __AVX512BF16__
        return (Floats)_mm512_dpbf16_ps((__m512)sums, (__m512bh)xs, (__m512bh)w);
#else
        sums += (Floats)(xs << 16) * (Floats)(w << 16);
        return sums + (Floats)(xs & 0xffff0000) * (Floats)(w & 0xffff0000);
#endif
    }
#if defined DOT_BYTES
    return (Floats)DOT_BYTES(sums, xs, w);
#elif defined DOT_MAGNITUDES /* where w is negative, |w| (-x - 1) = w x + w; -x would take one more instruction */
    return (Floats)DOT_MAGNITUDES(sums, (Bytes)xs ^ ((Bytes)w < 0), w);
#elif defined __ARM_FEATURE_DOTPROD
    return (Floats)vdotq_s32((int32x4_t)sums, (int8x16_t)xs, (int8x16_t)w);
#else
    Ints total = (Ints)sums;
    for (int shift = 24; shift >= 0; shift -= 8)
        total += ((Ints)(xs << shift) >> 24) * ((Ints)(w << shift) >> 24);
    return (Floats)total;
#endif
}

typedef struct {
    const Matrix *m;
    int64_t first, end, stride; /* range of outputs, and row stride of y */
    const uint32_t *x;
    const float *scale_R;
    float *y;
    int add;
} Product;

/* Writes the sums of a tile, [rows, panels]. Not inlined: all callers round alike, and the engine compiles faster. */
static __attribute__((noinline, noclone)) void store_outputs(
    const Product *product, int64_t r, int64_t o, int64_t rows, int64_t panels, const Floats *sums
) {
    const Product p = *product; /* a copy, which stores cannot change */
    const Matrix *m = p.m;
    const int type = m->type;
    for (int64_t j = 0; j < panels && o + j * LANES < p.end; j++) {
        int64_t at = o + j * LANES;
        int64_t count = p.end - at;
        Floats scale = load(m->scale_O, at, 0);
        Floats bias = load(m->bias, at, 0);
        Ints excess;
        memcpy(&excess, m->excess_O + at, sizeof excess);
        for (int64_t i = 0; i < rows; i++) {
            float *y = p.y + (r + i) * p.stride + at - p.first;
            Floats values = sums[i * panels + j];
            if (type == INT8)
                values = __builtin_convertvector((Ints)values - excess, Floats) * scale * p.scale_R[r + i];
            values += bias;
            if (count >= LANES)
                store(y, p.add ? values + load(y, 0, 0) : values);
            else
                for (int64_t k = 0; k < count; k++)
                    y[k] = p.add ? y[k] + values[k] : values[k];
        }
    }
}

INLINE void tile(const Product *p, int64_t r, int64_t o, int rows, int type) {
    int64_t units = p->m->units;
    const uint32_t *x = p->x + r * units, *w = p->m->w + o * units;
    Floats sums[ROWS][PANELS], stored[ROWS][PANELS]; /* in registers and in memory */
    UNROLLED for (int i = 0; i < rows; i++)
        UNROLLED for (int j = 0; j < PANELS; j++)
            sums[i][j] = (Floats){0};
    for (int64_t unit = 0; unit < units; unit++) {
        Bits ws[PANELS];
        UNROLLED for (int j = 0; j < PANELS; j++)
            memcpy(&ws[j], w + (j * units + unit) * LANES, sizeof ws[j]);
        UNROLLED for (int i = 0; i < rows; i++)
            UNROLLED for (int j = 0; j < PANELS; j++)
                sums[i][j] = accumulate(sums[i][j], x[i * units + unit], ws[j], type);
    }
    UNROLLED for (int i = 0; i < rows; i++)
        UNROLLED for (int j = 0; j < PANELS; j++)
            stored[i][j] = sums[i][j];
    store_outputs(p, r, o, rows, PANELS, stored[0]);
}

INLINE void tiles(const Product *p, int64_t rows, int type) {
    for (int64_t o = p->first; o < p->end; o += TILE)
        for (int64_t r = 0; r < rows;) {
            int64_t left = rows - r;
            if (left >= ROWS)
                tile(p, r, o, ROWS, type), r += ROWS;
            else if (left >= 4)
                tile(p, r, o, 4, type), r += 4;
            else if (left >= 2)
                tile(p, r, o, 2, type), r += 2;
            else
                tile(p, r, o, 1, type), r += 1;
        }
}

#ifdef AMX
/* Like `tiles`, in blocks of 32 rows by 32 outputs. The barriers keep the compiler from moving memory accesses across
   the instructions of the matrix unit, whose operands it does not know. */
#define BARRIER(pointer) __asm__ volatile("" : : "r"(pointer) : "memory")
#define AMX_SUM(dot)                                                                                                 \
    for (int64_t unit = 0; unit < units; unit += AMX) {                                                              \
        _tile_loadd(6, w + unit * LANES, 64);                                                                        \
        _tile_loadd(7, w + (units + unit) * LANES, 64);                                                              \
        _tile_loadd(4, x + unit, stride);                                                                            \
        dot(0, 4, 6); dot(1, 4, 7);                                                                                  \
        if (lower_rows) {                                                                                            \
            _tile_loadd(5, x + AMX * units + unit, stride);                                                          \
            dot(2, 5, 6); dot(3, 5, 7);                                                                              \
        }                                                                                                            \
    }

INLINE void amx_tiles(const Product *p, int64_t rows, int type) {
    int64_t units = p->m->units, stride = units * 4;
    Floats sums[2 * AMX][2];
    for (int64_t r = 0; r < rows; r += 2 * AMX) {
        int64_t count = rows - r < 2 * AMX ? rows - r : 2 * AMX, lower_rows = count > AMX ? count - AMX : 0;
        struct {
            uint8_t palette, start_row, reserved[14];
            uint16_t row_bytes[16];
            uint8_t rows[16];
        } config = {.palette = 1}; /* tile registers 0..3: sums, 4 and 5: x, 6 and 7: W */
        for (int i = 0; i < 8; i++) {
            config.row_bytes[i] = 64;
            int is_lower = i == 2 || i == 3 || i == 5;
            config.rows[i] = i > 5 ? AMX : !is_lower ? count - lower_rows : lower_rows ? lower_rows : 1;
        }
        BARRIER(&config);
        _tile_loadconfig(&config);
        const uint32_t *x = p->x + r * units;
        for (int64_t o = p->first; o < p->end; o += 2 * LANES) {
            const uint32_t *w = p->m->w + o * units;
            BARRIER(w);
            _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
            if (type == BF16)
                AMX_SUM(_tile_dpbf16ps)
            else
                AMX_SUM(_tile_dpbusd)
            _tile_stored(0, &sums[0][0], sizeof *sums); _tile_stored(1, &sums[0][1], sizeof *sums);
            _tile_stored(2, &sums[AMX][0], sizeof *sums); _tile_stored(3, &sums[AMX][1], sizeof *sums);
            BARRIER(sums);
            store_outputs(p, r, o, count, 2, sums[0]);
        }
    }
    _tile_release();
}
#endif

/* y = x W' + b, or y += x W' + b, for x in units and the outputs first .. end-1; `first` is a multiple of TILE. */
static void multiply_units(
    const Matrix *m, int64_t rows, const uint32_t *x, float *y, int64_t stride, int64_t first, int64_t end, int add
) {
    Product p = {m, first, end, stride, x, (const float *)(x + rows * m->units), y, add};
    if (m->type == FP32)
        tiles(&p, rows, FP32);
#ifdef AMX
    else if (amx_enabled && m->type == BF16)
        amx_tiles(&p, rows, BF16);
    else if (amx_enabled && rows > 4) /* sums of int8 are exact, so the faster path may depend on `rows` */
        amx_tiles(&p, rows, INT8);
#endif
    else if (m->type == BF16)
        tiles(&p, rows, BF16);
    else
        tiles(&p, rows, INT8);
}

static void multiply(const Matrix *m, int64_t rows, const float *x_RI, float *y_RO, int add, uint32_t *units) {
    multiply_units(m, rows, as_units(m, rows, x_RI, units), y_RO, m->outputs, 0, m->outputs, add);
}

/* ---- the model */

typedef struct {
    int64_t dim, heads, kv_heads, ffn_dim, encoder_layers, decoder_layers, layer_sharing, vocab_size, type, pre_norm,
        rms_norm, activation, recurrent, positions, max_positions, /* number of LEARNED positions; maximum distance of T5 */
        zero_token,                                           /* its embedding is zero; -1: none */
        bf16,                                                 /* whether embeddings, keys and values are bfloat16 */
        calibrated;                                           /* see "operations that round as in Marian" */
    double epsilon, rotary_base;
} Config;

typedef struct {
    float *gain, *bias; /* no bias in RMSNorm */
} Norm;

typedef struct {
    Matrix matrices[MATRICES];
    Norm norms[NORMS];
} Layer;

typedef struct {
    Config c;
    Arena arena;
    Layer *layers[2];
    Matrix output;
    Norm final_norms[2];
    Weight embeddings[2];      /* [V, D] in int8 if they were stored so, else in float32 or bfloat16 */
    const float *positions[2]; /* LEARNED: [position, D]; T5: [distance + max, H]; ALIBI: [H] */
} Model;

static int64_t distinct_layers(const Config *c, int stack) {
    int64_t layers = stack == ENCODER ? c->encoder_layers : c->decoder_layers;
    return (layers + c->layer_sharing - 1) / c->layer_sharing;
}

static void *copy_bytes(Arena *arena, const void *from, int64_t bytes) {
    void *to = from ? arena_alloc(arena, bytes) : 0;
    return to ? memcpy(to, from, bytes) : 0;
}

static float *copy(Arena *arena, Weight from, int64_t count) { return copy_bytes(arena, from.values, count * 4); }

static Weight copy_embeddings(Arena *arena, const Config *c, Weight from) {
    int64_t count = c->vocab_size * c->dim;
    if (from.scale_O)
        return (Weight){copy_bytes(arena, from.values, count), copy_bytes(arena, from.scale_O, c->vocab_size * 4)};
    if (!c->bf16)
        return (Weight){copy(arena, from, count), 0};
    uint16_t *to = arena_alloc(arena, count * 2);
    for (int64_t i = 0; to && i < count; i++)
        to[i] = to_bf16(((const float *)from.values)[i]);
    return (Weight){to, 0};
}

void model_free(Model *m) { arena_free(&m->arena), free(m); }

/* Packs a model. `weights` contains for each stack: the matrices and norms of each distinct layer, in the order of the
   enums, a matrix with its bias and its multipliers, a norm with its bias; the final norm with its bias; the embeddings
   (null in the decoder: those of the encoder); and the parameters of the position encoding. The output matrix, its bias
   and its multipliers follow. Only matrices and embeddings may be in int8. Returns null if out of memory. */
Model *model_new(const Config *config, const Weight *weights) {
    Model *m = calloc(1, sizeof *m);
    if (!m)
        return 0;
    m->c = *config;
    const Config *c = &m->c;
    int64_t dim = c->dim, kv = 2 * c->kv_heads * (dim / c->heads), up = c->ffn_dim << (c->activation == SWIGLU);
    int64_t outputs[MATRICES] = {dim + kv, dim, dim, kv, dim, up, dim};
    int64_t position_params[T5 + 1] = {[LEARNED] = c->max_positions * dim, [ALIBI] = c->heads,
                               [T5] = (2 * c->max_positions + 1) * c->heads};
    for (int stack = 0; stack < 2; stack++) {
        if (stack == DECODER && c->recurrent)
            outputs[CANDIDATE] = dim;
        m->layers[stack] = arena_alloc(&m->arena, distinct_layers(c, stack) * sizeof(Layer));
        for (int64_t i = 0; i < distinct_layers(c, stack) && !m->arena.failed; i++) {
            for (int j = 0; j < MATRICES; j++, weights += 3)
                if (weights->values)
                    pack(&m->arena, &m->layers[stack][i].matrices[j], outputs[j], j == DOWN ? c->ffn_dim : dim,
                         (int)c->type, weights[0], weights[1].values, weights[2].values);
            for (int j = 0; j < NORMS; j++, weights += 2)
                m->layers[stack][i].norms[j] =
                    (Norm){copy(&m->arena, weights[0], dim), copy(&m->arena, weights[1], dim)};
        }
        m->final_norms[stack] = (Norm){copy(&m->arena, weights[0], dim), copy(&m->arena, weights[1], dim)};
        m->embeddings[stack] = weights[2].values ? copy_embeddings(&m->arena, c, weights[2]) : m->embeddings[ENCODER];
        m->positions[stack] = copy(&m->arena, weights[3], position_params[c->positions]);
        weights += 4;
    }
    pack(&m->arena, &m->output, c->vocab_size, dim, (int)c->type, weights[0], weights[1].values, weights[2].values);
    return m->arena.failed ? model_free(m), (Model *)0 : m;
}

/* ---- layers */

INLINE void normalize(const Config *c, const Norm *n, int64_t rows, const float *x_RD, float *out_RD) {
    int64_t dim = c->dim;
    int64_t vectors = dim - dim % LANES;
    int centers = !c->rms_norm;
    float epsilon = (float)c->epsilon;
    const float *gain = n->gain;
    const float *bias = n->bias;
    if (c->calibrated) {
        normalize_in_order(rows, dim, epsilon, gain, bias, x_RD, out_RD);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *x = x_RD + r * dim;
        float *out = out_RD + r * dim;
        float mean = centers ? sum_of(x, dim) / dim : 0;
        float square = 0;
        Floats squares = {0};
        for (int64_t i = 0; i < vectors; i += LANES) {
            Floats centered = load(x, i, 0) - mean;
            squares += centered * centered;
        }
        for (int64_t i = vectors; i < dim; i++)
            square += (x[i] - mean) * (x[i] - mean);
        float scale = 1 / sqrtf((hsum(squares) + square) / dim + epsilon);
        if (bias)
            for (int64_t i = 0; i < dim; i++)
                out[i] = (x[i] - mean) * scale * gain[i] + bias[i];
        else
            for (int64_t i = 0; i < dim; i++)
                out[i] = (x[i] - mean) * scale * gain[i];
    }
}

/* The error function with an error of 2e-7 (Abramowitz and Stegun, formula 7.1.26). */
INLINE float error_function(float x) {
    float a = fabsf(x), t = 1 / (1 + 0.3275911f * a);
    float p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    return copysignf(1 - p * exponential(-a * a), x);
}

INLINE float silu(float x) { return x / (1 + exponential(-x)); }

/* Applies the activation in place; SwiGLU halves the width (Shazeer 2020, equation 5), so the row stride becomes F. */
static void activate(const Config *c, int64_t rows, float *x) {
    int64_t ffn_dim = c->ffn_dim;
    int64_t count = rows * ffn_dim;
    if (c->activation == RELU)
        for (int64_t i = 0; i < count; i++)
            x[i] = x[i] < 0 ? 0 : x[i]; /* keeps NaN */
    else if (c->activation == GELU)
        for (int64_t i = 0; i < count; i++)
            x[i] = 0.5f * x[i] * (1 + error_function(x[i] * 0.70710678f));
    else if (c->activation == SILU)
        for (int64_t i = 0; i < count; i++)
            x[i] = silu(x[i]);
    else
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < ffn_dim; i++)
                x[r * ffn_dim + i] = silu(x[2 * r * ffn_dim + i]) * x[(2 * r + 1) * ffn_dim + i];
}

/* The rotations of dimensions 2i and 2i+1 by position / base^(2i/K) (Su et al. 2021, equation 34). */
static void rotations(const Config *c, int64_t position, float *cos_sin_K) {
    int64_t width = c->dim / c->heads;
    for (int64_t i = 0; i < width; i += 2) {
        double angle = position * pow(c->rotary_base, -(double)i / width);
        cos_sin_K[i] = (float)cos(angle), cos_sin_K[i + 1] = (float)sin(angle);
    }
}

static void rotate(float *x_HK, int64_t heads, int64_t width, const float *cos_sin_K) {
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < width; i += 2) {
            float *x = x_HK + h * width + i, first = x[0];
            x[0] = first * cos_sin_K[i] - x[1] * cos_sin_K[i + 1];
            x[1] = x[1] * cos_sin_K[i] + first * cos_sin_K[i + 1];
        }
}

/* Writes the encoding that is added to the embedding at a position (Vaswani et al. 2017, section 3.5). */
static void position_row(const Model *m, int stack, int64_t position, float *row_D) {
    int64_t dim = m->c.dim, kind = m->c.positions, half = (dim + 1) / 2;
    memset(row_D, 0, dim * 4);
    if (kind == LEARNED)
        memcpy(row_D, m->positions[stack] + position * dim, dim * 4);
    else if (kind == MARIAN)
        marian_position(dim, position, row_D);
    for (int64_t i = 0; (kind == SINUSOIDAL || kind == CONCATENATED) && i < half; i++) {
        double angle = position * pow(10000.0, -2.0 * i / dim);
        int64_t at_sin = kind == SINUSOIDAL ? 2 * i : i, at_cos = kind == SINUSOIDAL ? 2 * i + 1 : half + i;
        row_D[at_sin] = (float)sin(angle);
        if (at_cos < dim)
            row_D[at_cos] = (float)cos(angle);
    }
}

__attribute__((noinline)) /* a copy in each caller would be large */
static void embed(const Model *m, int stack, int32_t token, const float *position_D, float *x_D) {
    int64_t dim = m->c.dim;
    int bf16 = (int)m->c.bf16;
    float scale = token == m->c.zero_token ? 0 : sqrtf((float)dim);
    Weight table = m->embeddings[stack];
    if (table.scale_O) {
        const float *row = row_of(table, token, dim, x_D);
        for (int64_t i = 0; bf16 && i < dim; i++)
            x_D[i] = from_bits((uint32_t)to_bf16(row[i]) << 16);
    } else {
        for (int64_t i = 0; i < dim; i++)
            x_D[i] = load_scalar(table.values, token * dim + i, bf16);
    }
    embed_at(dim, scale, position_D, x_D);
}

/* The bias of the score of a key that is `distance` positions before the query: ALiBi (Press et al. 2022, section 3) or
   T5 (Raffel et al. 2020, section 2.1). */
INLINE float distance_bias(const Model *m, int stack, int64_t head, int64_t distance) {
    if (m->c.positions == ALIBI)
        return -m->positions[stack][head] * (float)(distance < 0 ? -distance : distance);
    int64_t limit = m->c.max_positions;
    distance = distance > limit ? limit : distance < -limit ? -limit : distance;
    return m->positions[stack][(distance + limit) * m->c.heads + head];
}

/* Attention of one query to `count` keys: softmax(q k' / sqrt K + bias) v (Vaswani et al. 2017, equation 1). The layout
   of keys is [K, size], that of values [count, padded_width]; `size` and `padded_width` are multiples of LANES. */
INLINE void attend(
    const float *q_K, int64_t width, const void *k_KS, const void *v_SK, int64_t count, int64_t size,
    int64_t padded_width, const float *bias_S, float *weights_S, float *out_K, int bf16
) {
    float scale = 1.0f / sqrtf((float)width);
    for (int64_t s = 0; s < size; s += LANES) {
        Floats sums[4] = {{0}};
        int64_t i = 0;
        for (; i + 4 <= width; i += 4)
            UNROLLED for (int j = 0; j < 4; j++)
                sums[j] += q_K[i + j] * load(k_KS, (i + j) * size + s, bf16);
        for (; i < width; i++)
            sums[0] += q_K[i] * load(k_KS, i * size + s, bf16);
        store(weights_S + s, ((sums[0] + sums[1]) + (sums[2] + sums[3])) * scale);
    }
    for (int64_t s = 0; bias_S && s < count; s++)
        weights_S[s] += bias_S[s];
    softmax(weights_S, count);
    for (int64_t i = 0; i < padded_width; i += LANES) {
        Floats sums = {0};
        for (int64_t s = 0; s < count; s++)
            sums += weights_S[s] * load(v_SK, s * padded_width + i, bf16);
        if (i + LANES <= width)
            store(out_K + i, sums);
        else
            for (int64_t j = 0; i + j < width; j++)
                out_K[i + j] = sums[j];
    }
}

/* Size in bytes of the keys and values of some tokens, in the layout of `attend`. */
static int64_t kv_bytes(const Config *c, int64_t tokens, int bf16) {
    int64_t width = c->dim / c->heads;
    return c->kv_heads * (width * round_up(tokens, LANES) + tokens * round_up(width, LANES)) * (bf16 ? 2 : 4);
}

/* Converts keys and values from rows, `stride` numbers apart, to the layout of `attend`. */
static void pack_kv(
    const Config *c, const float *k, const float *v, int64_t stride, int64_t tokens, void *kv, int bf16
) {
    int64_t width = c->dim / c->heads, size = round_up(tokens, LANES), padded_width = round_up(width, LANES);
    memset(kv, 0, kv_bytes(c, tokens, bf16));
    for (int64_t g = 0; g < c->kv_heads; g++) {
        int64_t first = g * (width * size + tokens * padded_width);
        for (int64_t s = 0; s < tokens; s++)
            for (int64_t i = 0; i < width; i++) {
                store_scalar(kv, first + i * size + s, k[s * stride + g * width + i], bf16);
                store_scalar(kv, first + width * size + s * padded_width + i, v[s * stride + g * width + i], bf16);
            }
    }
}

/* Attention of all heads of one query to the first `count` of the `tokens` that `pack_kv` has packed. */
INLINE void attend_heads(
    const Model *m, const float *q_HK, const void *kv, int64_t tokens, int64_t count, const float *bias_HS,
    float *weights_HS, float *out_HK, int bf16
) {
    const Config *c = &m->c;
    int64_t heads = c->heads;
    int64_t group = heads / c->kv_heads;
    int64_t width = c->dim / heads;
    int64_t size = round_up(tokens, LANES);
    int64_t padded_width = round_up(width, LANES);
    for (int64_t h = 0; h < heads; h++) {
        int64_t first = h / group * (width * size + tokens * padded_width);
        const char *k = (const char *)kv + first * (bf16 ? 2 : 4);
        const char *v = k + width * size * (bf16 ? 2 : 4);
        const float *q = q_HK + h * width;
        float *weights = weights_HS + h * size, *out = out_HK + h * width;
        if (c->calibrated)
            attend_in_order(q, width, (const float *)k, (const float *)v, count, size, padded_width, weights, out);
        else
            attend(q, width, k, v, count, size, padded_width, bias_HS ? bias_HS + h * size : 0, weights, out, bf16);
    }
}

/* ---- the state of a batch */

typedef struct {
    int64_t rows;
    void *kv;           /* [layers, 2, rows, G*K]; in a recurrent model the states, float32 [layers, rows, D] */
    int32_t *parents_R; /* row of the previous step that each row continues; in the first step, its sentence */
} Step;

/* An output layer: its tokens in ascending order, or null for the whole vocabulary. */
typedef struct {
    Matrix matrix;
    const int32_t *tokens_C;
} Output;

typedef struct {
    Model *m;
    Arena batch, scratch; /* memory of the batch, and of one call */
    int64_t steps, capacity, max_tokens, track;
    int32_t *lengths_B;
    void **cross_kv_B; /* keys and values of each sentence: [distinct layers], in the layout of `attend` */
    Output *outputs_B; /* the shortlist of each sentence; null: none */
    Step *steps_T;
    float *x, *normed, *qkv, *context, *hidden, *attention; /* buffers of a block of rows */
    uint32_t *units;
} State;

void state_free(State *s) { arena_free(&s->batch), arena_free(&s->scratch), free(s->steps_T), free(s); }

State *state_new(Model *m) {
    State *s = calloc(1, sizeof *s);
    if (s)
        s->m = m;
    return s;
}

/* Allocates the buffers of a block of rows, with `attention` bytes for attention. */
static int reserve(State *s, int64_t rows, int64_t attention) {
    const Config *c = &s->m->c;
    int64_t dim = c->dim, kv = 2 * c->kv_heads * (dim / c->heads), widest = c->ffn_dim > dim ? c->ffn_dim : dim;
    arena_reset(&s->scratch);
    s->x = arena_alloc(&s->scratch, rows * dim * 4), s->normed = arena_alloc(&s->scratch, rows * dim * 4);
    s->qkv = arena_alloc(&s->scratch, rows * (dim + (kv > dim ? kv : dim)) * 4), s->context = arena_alloc(&s->scratch, rows * dim * 4);
    s->hidden = arena_alloc(&s->scratch, (rows * c->ffn_dim << (c->activation == SWIGLU)) * 4);
    s->units = arena_alloc(&s->scratch, rows * (units_of(widest, BF16) + 1) * 4);
    s->attention = arena_alloc(&s->scratch, attention);
    return !s->scratch.failed;
}

/* Returns the input of a sublayer: norm(x) in pre-norm, x in post-norm. */
static const float *norm_input(State *s, const Norm *n, int64_t rows) {
    if (!s->m->c.pre_norm)
        return s->x;
    normalize(&s->m->c, n, rows, s->x, s->normed);
    return s->normed;
}

/* Adds the output of a sublayer to the residual stream, and normalizes the stream in post-norm. */
static void add_output(State *s, const Matrix *out, const Norm *n, const float *y, int64_t rows) {
    multiply(out, rows, y, s->x, 1, s->units);
    if (!s->m->c.pre_norm)
        normalize(&s->m->c, n, rows, s->x, s->x);
}

/* Projects candidates and gates of the recurrence into `s->qkv`, [2, rows, D]. */
static void project_recurrence(State *s, const Layer *layer, int64_t rows) {
    const float *input = norm_input(s, &layer->norms[SELF_NORM], rows);
    multiply(&layer->matrices[CANDIDATE], rows, input, s->qkv, 0, s->units);
    multiply(&layer->matrices[GATE], rows, input, s->qkv + rows * s->m->c.dim, 0, s->units);
}

/* Adds the output of the recurrence, `s->context`, to the residual stream, and normalizes the stream in post-norm. */
static void add_recurrence(State *s, const Norm *n, int64_t rows) {
    for (int64_t i = 0; i < rows * s->m->c.dim; i++)
        s->x[i] += s->context[i];
    if (!s->m->c.pre_norm)
        normalize(&s->m->c, n, rows, s->x, s->x);
}

static void feed_forward(State *s, const Layer *layer, int64_t rows) {
    const Norm *norm = &layer->norms[FFN_NORM];
    multiply(&layer->matrices[UP], rows, norm_input(s, norm, rows), s->hidden, 0, s->units);
    activate(&s->m->c, rows, s->hidden);
    add_output(s, &layer->matrices[DOWN], norm, s->hidden, rows);
}

/* Self-attention within each of several sentences, whose tokens are contiguous; in the decoder, to the tokens so far. */
static void self_attention(State *s, int stack, const int32_t *lengths, int64_t sentences) {
    const Config *c = &s->m->c;
    int64_t width = c->dim / c->heads, stride = c->dim + 2 * c->kv_heads * width, first = 0, longest = 0;
    int biased = c->positions == ALIBI || c->positions == T5;
    for (int64_t b = 0; b < sentences; b++)
        longest = lengths[b] > longest ? lengths[b] : longest;
    for (int64_t i = 0; c->positions == ROTARY && i < longest; i++) { /* computes the slow rotations once */
        rotations(c, i, s->attention);
        for (int64_t b = 0, r = i; b < sentences; r += lengths[b++])
            if (i < lengths[b])
                rotate(s->qkv + r * stride, c->heads + c->kv_heads, width, s->attention);
    }
    for (int64_t b = 0; b < sentences; first += lengths[b++]) {
        int64_t tokens = lengths[b], size = round_up(tokens, LANES);
        float *qkv = s->qkv + first * stride;
        float *bias = s->attention + kv_bytes(c, tokens, 0) / 4, *weights = bias + c->heads * size;
        pack_kv(c, qkv + c->dim, qkv + c->dim + c->kv_heads * width, stride, tokens, s->attention, 0);
        for (int64_t i = 0; i < tokens; i++) {
            for (int64_t h = 0; biased && h < c->heads; h++)
                for (int64_t j = 0; j < tokens; j++)
                    bias[h * size + j] = distance_bias(s->m, stack, h, i - j);
            int64_t count = stack == DECODER ? i + 1 : tokens;
            attend_heads(s->m, qkv + i * stride, s->attention, tokens, count, biased ? bias : 0, weights,
                         s->context + (first + i) * c->dim, 0);
        }
    }
}

/* Writes the embeddings of several sentences to `s->x`. */
static void embed_sentences(State *s, int stack, const int32_t *lengths, int64_t sentences, const int32_t *tokens) {
    const Model *m = s->m;
    int64_t dim = m->c.dim, positions = 0, r = 0;
    for (int64_t b = 0; b < sentences; b++)
        for (int64_t i = 0; i < lengths[b]; i++, r++) {
            if (i == positions) /* sines and cosines take long: once for all sentences */
                position_row(m, stack, positions++, s->context + i * dim);
            embed(m, stack, tokens[r], s->context + i * dim, s->x + r * dim);
        }
}

/* Encodes several sentences, and projects the keys and values of cross-attention. */
static int encode(State *s, int64_t first, int64_t sentences, const int32_t *tokens, int64_t rows) {
    const Model *m = s->m;
    const Config *c = &m->c;
    int64_t kv_dim = c->kv_heads * (c->dim / c->heads);
    int bf16 = (int)c->bf16;
    if (!reserve(s, rows, kv_bytes(c, rows, 0) + 2 * c->heads * round_up(rows, LANES) * 4))
        return 0;
    embed_sentences(s, ENCODER, s->lengths_B + first, sentences, tokens);
    for (int64_t i = 0; i < c->encoder_layers; i++) {
        const Layer *layer = &m->layers[ENCODER][i / c->layer_sharing];
        const Norm *norm = &layer->norms[SELF_NORM];
        multiply(&layer->matrices[QKV], rows, norm_input(s, norm, rows), s->qkv, 0, s->units);
        self_attention(s, ENCODER, s->lengths_B + first, sentences);
        add_output(s, &layer->matrices[OUT], norm, s->context, rows);
        feed_forward(s, layer, rows);
    }
    const float *memory = norm_input(s, &m->final_norms[ENCODER], rows);
    for (int64_t i = 0; i < distinct_layers(c, DECODER); i++) {
        multiply(&m->layers[DECODER][i].matrices[CROSS_KV], rows, memory, s->qkv, 0, s->units);
        for (int64_t b = 0, r = 0; b < sentences; r += s->lengths_B[first + b++]) {
            int64_t count = s->lengths_B[first + b];
            const float *kv = s->qkv + r * 2 * kv_dim;
            pack_kv(c, kv, kv + kv_dim, 2 * kv_dim, count,
                    (char *)s->cross_kv_B[first + b] + i * kv_bytes(c, count, bf16), bf16);
        }
    }
    return 1;
}

/* Starts a batch: encodes sentences of `lengths_B` tokens, which are concatenated in `tokens`. A state can be reused
   for other batches and keeps its memory. `track` enables recording the cross-attention of the layer that aligns
   words best: the second to last (Garg et al. 2019, section 4.1), but of two layers the last. `candidates` are the
   tokens of the shortlists in ascending order, concatenated, `counts_B` of each sentence; null: there are none. Returns
   0 if out of memory. */
int init_search_state(
    State *s, int64_t sentences, const int32_t *lengths_B, const int32_t *tokens, int track, const int32_t *counts_B,
    const int32_t *candidates
) {
    const Config *c = &s->m->c;
    arena_reset(&s->batch);
    s->steps = s->max_tokens = 0;
    s->track = track ? (c->decoder_layers > 2 ? c->decoder_layers - 2 : c->decoder_layers - 1) : -1;
    s->lengths_B = arena_alloc(&s->batch, sentences * sizeof *s->lengths_B);
    s->cross_kv_B = arena_alloc(&s->batch, sentences * sizeof *s->cross_kv_B);
    s->outputs_B = counts_B ? arena_alloc(&s->batch, sentences * sizeof *s->outputs_B) : 0;
    if (s->batch.failed)
        return 0;
    for (int64_t b = 0, first = 0; counts_B && b < sentences && !s->batch.failed; first += counts_B[b++]) {
        int32_t *tokens_C = arena_alloc(&s->batch, counts_B[b] * sizeof *tokens_C);
        if (tokens_C)
            memcpy(tokens_C, candidates + first, counts_B[b] * sizeof *tokens_C);
        s->outputs_B[b].tokens_C = tokens_C;
        select_outputs(&s->batch, &s->outputs_B[b].matrix, &s->m->output, candidates + first, counts_B[b]);
    }
    if (s->batch.failed)
        return 0;
    memcpy(s->lengths_B, lengths_B, sentences * sizeof *lengths_B);
    for (int64_t b = 0; b < sentences; b++) {
        int64_t bytes = distinct_layers(c, DECODER) * kv_bytes(c, lengths_B[b], (int)c->bf16);
        s->cross_kv_B[b] = arena_alloc(&s->batch, bytes);
        s->max_tokens = lengths_B[b] > s->max_tokens ? lengths_B[b] : s->max_tokens;
    }
    for (int64_t first = 0, end; first < sentences && !s->batch.failed; first = end) {
        int64_t rows = lengths_B[first];
        for (end = first + 1; end < sentences && rows + lengths_B[end] <= BLOCK_ROWS; end++)
            rows += lengths_B[end];
        if (!encode(s, first, end - first, tokens, rows))
            return 0;
        tokens += rows;
    }
    return !s->batch.failed;
}

/* Attention of the new position of each row to the target so far, including itself. Keys and values are not moved when
   rows are reordered; `ancestors_RT` contains the ancestor of each row at each step. */
static void decoder_self_attention(
    State *s, int64_t layer, int64_t first, int64_t rows, int32_t *ancestors_RT, int bf16
) {
    const Model *m = s->m;
    const Config *c = &m->c;
    int64_t dim = c->dim;
    int64_t heads = c->heads;
    int64_t width = dim / heads;
    int64_t kv_dim = c->kv_heads * width;
    int64_t stride = dim + 2 * kv_dim;
    int64_t group = heads / c->kv_heads;
    int64_t steps = s->steps;
    int64_t size = round_up(steps, LANES);
    const Step *steps_T = s->steps_T;
    const Step current = steps_T[steps - 1];
    float scale = 1.0f / sqrtf((float)width);
    float *weights_HT = s->attention;
    float *cos_sin = weights_HT + heads * size;
    int rotary = c->positions == ROTARY;
    int biased = c->positions == ALIBI || c->positions == T5;
    if (rotary)
        rotations(c, steps - 1, cos_sin);
    for (int64_t r = 0; r < rows; r++) {
        float *qkv = s->qkv + r * stride;
        float *out = s->context + r * dim;
        if (rotary)
            rotate(qkv, heads + c->kv_heads, width, cos_sin);
        int64_t k_at = (2 * layer * current.rows + first + r) * kv_dim;
        int64_t v_at = ((2 * layer + 1) * current.rows + first + r) * kv_dim;
        for (int64_t i = 0; i < kv_dim; i++) {
            store_scalar(current.kv, k_at + i, qkv[dim + i], bf16);
            store_scalar(current.kv, v_at + i, qkv[dim + kv_dim + i], bf16);
        }
        for (int64_t i = 0; i < dim; i++) {
            qkv[i] *= scale;
            out[i] = 0;
        }
        const int32_t *ancestors_T = ancestors_RT + r * steps;
        for (int64_t t = 0; t < steps; t++) {
            const Step past = steps_T[t];
            int64_t at = (2 * layer * past.rows + ancestors_T[t]) * kv_dim;
            for (int64_t h = 0; h < heads; h++) {
                float score = dot(qkv + h * width, past.kv, at + h / group * width, width, bf16);
                weights_HT[h * size + t] = biased ? score + distance_bias(m, DECODER, h, steps - 1 - t) : score;
            }
        }
        for (int64_t h = 0; h < heads; h++)
            softmax(weights_HT + h * size, steps);
        for (int64_t t = 0; t < steps; t++) {
            const Step past = steps_T[t];
            int64_t at = ((2 * layer + 1) * past.rows + ancestors_T[t]) * kv_dim;
            for (int64_t h = 0; h < heads; h++) {
                float weight = weights_HT[h * size + t];
                float *restrict to = out + h * width;
                for (int64_t i = 0; i < width; i++)
                    to[i] += weight * load_scalar(past.kv, at + h / group * width + i, bf16);
            }
        }
    }
}

/* The recurrence of the new position of each row, from the state of its parent. */
static void decoder_recurrence(State *s, int64_t layer, int64_t first, int64_t rows) {
    int64_t dim = s->m->c.dim;
    const Step *step = &s->steps_T[s->steps - 1];
    for (int64_t r = 0; r < rows; r++) {
        const float *previous = 0;
        if (s->steps > 1) {
            int64_t parent = step->parents_R[first + r];
            previous = (const float *)step[-1].kv + (layer * step[-1].rows + parent) * dim;
        }
        float *state = (float *)step->kv + (layer * step->rows + first + r) * dim;
        const float *candidate = s->qkv + r * dim;
        recur(dim, candidate, candidate + rows * dim, previous, state, s->context + r * dim);
    }
}

/* The recurrence over each of several targets, whose tokens are contiguous. */
static void recurrence(State *s, const int32_t *lengths, int64_t sentences, int64_t rows) {
    int64_t dim = s->m->c.dim;
    float *state = s->attention;
    for (int64_t b = 0, r = 0; b < sentences; b++)
        for (int64_t i = 0; i < lengths[b]; i++, r++) {
            const float *candidate = s->qkv + r * dim;
            recur(dim, candidate, candidate + rows * dim, i ? state : 0, state, s->context + r * dim);
        }
}

static void cross_attention(
    State *s, int64_t layer, int64_t rows, const int32_t *sources_R, float *tracked_RS, int bf16
) {
    const Config *c = &s->m->c;
    float *weights_HS = s->attention;
    for (int64_t r = 0; r < rows; r++) {
        int64_t tokens = s->lengths_B[sources_R[r]], size = round_up(tokens, LANES);
        const char *kv = (const char *)s->cross_kv_B[sources_R[r]] + layer * kv_bytes(c, tokens, bf16);
        attend_heads(s->m, s->qkv + r * c->dim, kv, tokens, tokens, 0, weights_HS,
                     s->context + r * c->dim, bf16);
        for (int64_t i = 0; tracked_RS && i < s->max_tokens; i++) {
            float sum = 0;
            for (int64_t h = 0; i < tokens && h < c->heads; h++)
                sum += weights_HS[h * size + i];
            tracked_RS[r * s->max_tokens + i] = sum / c->heads;
        }
    }
}

/* Whether x ranks before y; NaN ranks first, so that searches notice it. */
INLINE int ranks_before(float x, float y) { return x > y || (x != x && y == y); }

/* Inserts the scores of tokens first .. first + count - 1 into the list of the `k` best, which has `size` entries; of
   equal scores, the lower token comes first. Returns the new size. */
static int64_t insert_best(
    const float *scores, int64_t first, int64_t count, int64_t k, int64_t size, float *best, int32_t *tokens
) {
    for (int64_t from = 0; from < count; from += SCAN) {
        int64_t end = from + SCAN < count ? from + SCAN : count;
        if (size == k && !ranks_before(max_of(scores + from, end - from), best[k - 1]))
            continue;
        for (int64_t v = from; v < end; v++) {
            if (size == k && !ranks_before(scores[v], best[k - 1]))
                continue;
            int64_t i = size < k ? size++ : k - 1;
            for (; i > 0 && ranks_before(scores[v], best[i - 1]); i--)
                best[i] = best[i - 1], tokens[i] = tokens[i - 1];
            best[i] = scores[v], tokens[i] = (int32_t)(first + v);
        }
    }
    return size;
}

/* The request and the output buffers of a step. Rows of banned tokens are padded with -1. */
typedef struct {
    int64_t k, num_banned, num_gathered;
    const int32_t *banned_RX, *gather_RP;
    float *log_p_RK;          /* log-probabilities of the k best tokens that are not banned, in descending order */
    int32_t *tokens_RK;
    float *gathered_log_p_RP; /* those of the gathered tokens, banned or not */
    float *log_p_RV;          /* those of the whole vocabulary, or null */
    float *attention_RS;      /* cross-attention of the tracked layer, averaged over heads, [R, max S], or null */
} Request;

/* Subtracts a value from a row of numbers. */
static void subtract(float *x_RN, int64_t row, int64_t count, float value) {
    for (int64_t i = 0; i < count; i++)
        x_RN[row * count + i] -= value;
}

/* The index of a token in an output layer, or a negative number. */
static int64_t index_of(const Output *output, int64_t token) {
    if (!output->tokens_C)
        return token;
    int64_t low = 0, high = output->matrix.outputs;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (output->tokens_C[middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low < output->matrix.outputs && output->tokens_C[low] == token ? low : -1;
}

/* Projects hidden states to logits, block by block of the output layer, and writes the outputs of the request. A token
   that is not in the output layer has the log-probability -infinity. */
static void project_to(
    State *s, const Output *output, const Request *q, int64_t first, int64_t rows, const float *x_RD, float *chunk
) {
    const Matrix *matrix = &output->matrix;
    int64_t vocabulary = s->m->c.vocab_size, num_outputs = matrix->outputs, num_best_R[BLOCK_ROWS];
    float max_R[BLOCK_ROWS], sum_R[BLOCK_ROWS];
    if (output->tokens_C) {
        for (int64_t i = 0; i < rows * q->k; i++)
            q->log_p_RK[first * q->k + i] = -INFINITY, q->tokens_RK[first * q->k + i] = 0;
        for (int64_t i = 0; i < rows * q->num_gathered; i++)
            q->gathered_log_p_RP[first * q->num_gathered + i] = -INFINITY;
        for (int64_t i = 0; q->log_p_RV && i < rows * vocabulary; i++)
            q->log_p_RV[first * vocabulary + i] = -INFINITY;
    }
    for (int64_t r = 0; r < rows; r++)
        max_R[r] = -INFINITY, sum_R[r] = 0, num_best_R[r] = 0;
    const uint32_t *x = as_units(matrix, rows, x_RD, s->units);
    for (int64_t v = 0; v < num_outputs; v += BLOCK_LOGITS) {
        int64_t count = v + BLOCK_LOGITS < num_outputs ? BLOCK_LOGITS : num_outputs - v;
        multiply_units(matrix, rows, x, chunk, BLOCK_LOGITS, v, v + count, 0);
        for (int64_t r = 0; r < rows; r++) {
            float *logits = chunk + r * BLOCK_LOGITS, shifted[BLOCK_LOGITS];
            float block_max = max_of(logits, count), previous_max = max_R[r];
            if (ranks_before(block_max, previous_max)) {
                sum_R[r] *= previous_max == -INFINITY ? 0 : exponential(previous_max - block_max);
                max_R[r] = block_max;
            }
            for (int64_t i = 0; i < count; i++)
                shifted[i] = exponential(logits[i] - max_R[r]);
            sum_R[r] += sum_of(shifted, count);
            float *log_p_V = q->log_p_RV ? q->log_p_RV + (first + r) * vocabulary : 0;
            for (int64_t i = 0; log_p_V && i < count; i++)
                log_p_V[output->tokens_C ? output->tokens_C[v + i] : v + i] = logits[i];
            for (int64_t i = 0; i < q->num_gathered; i++) {
                int64_t at = (first + r) * q->num_gathered + i, token = index_of(output, q->gather_RP[at]) - v;
                if (token >= 0 && token < count)
                    q->gathered_log_p_RP[at] = logits[token];
            }
            for (int64_t i = 0; i < q->num_banned; i++) {
                int64_t token = index_of(output, q->banned_RX[(first + r) * q->num_banned + i]) - v;
                if (token >= 0 && token < count)
                    logits[token] = -INFINITY;
            }
            if (q->k)
                num_best_R[r] = insert_best(logits, v, count, q->k, num_best_R[r], q->log_p_RK + (first + r) * q->k,
                                            q->tokens_RK + (first + r) * q->k);
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        float log_sum = max_R[r] + logf(sum_R[r]);
        subtract(q->log_p_RK, first + r, q->k, log_sum);
        subtract(q->gathered_log_p_RP, first + r, q->num_gathered, log_sum);
        if (q->log_p_RV)
            subtract(q->log_p_RV, first + r, vocabulary, log_sum);
        for (int64_t i = 0; output->tokens_C && i < num_best_R[r]; i++) {
            int32_t *token = &q->tokens_RK[(first + r) * q->k + i];
            *token = output->tokens_C[*token];
        }
    }
}

/* Projects the hidden states of a block of rows, those of a sentence with a shortlist to its tokens only. */
static void project(
    State *s, const Request *q, int64_t first, int64_t rows, const int32_t *sources_R, float *chunk
) {
    const Model *m = s->m;
    const float *x = norm_input(s, &m->final_norms[DECODER], rows);
    if (!s->outputs_B) {
        Output all = {.matrix = m->output};
        project_to(s, &all, q, first, rows, x, chunk);
        return;
    }
    for (int64_t r = 0, end; r < rows; r = end) {
        for (end = r + 1; end < rows && sources_R[end] == sources_R[r];)
            end++;
        project_to(s, &s->outputs_B[sources_R[r]], q, first + r, end - r, x + r * m->c.dim, chunk);
    }
}

/* Reads one more token per row. `parents_R` contains the row of the previous step that each row continues; in the first
   step, its sentence. So rows can be dropped, repeated and reordered. Returns 0 if out of memory. */
int decode_step(State *s, int64_t rows, const int32_t *tokens_R, const int32_t *parents_R, const Request *q) {
    const Model *m = s->m;
    const Config *c = &m->c;
    int64_t kv_dim = c->kv_heads * (c->dim / c->heads), block = rows < BLOCK_ROWS ? rows : BLOCK_ROWS;
    int bf16 = (int)c->bf16;
    if (s->steps == s->capacity) {
        Step *steps = realloc(s->steps_T, (s->capacity + 64) * sizeof *steps);
        if (!steps)
            return 0;
        s->steps_T = steps, s->capacity += 64;
    }
    int64_t steps = s->steps + 1, longest = round_up(steps > s->max_tokens ? steps : s->max_tokens, LANES);
    Step *step = &s->steps_T[s->steps];
    step->rows = rows;
    if (c->recurrent && s->steps > 1 && step[-2].rows >= rows)
        step->kv = step[-2].kv; /* only the previous states are read */
    else if (c->recurrent)
        step->kv = arena_alloc(&s->batch, c->decoder_layers * rows * c->dim * 4);
    else
        step->kv = arena_alloc(&s->batch, c->decoder_layers * 2 * rows * kv_dim * (bf16 ? 2 : 4));
    step->parents_R = arena_alloc(&s->batch, rows * sizeof *step->parents_R);
    reserve(s, block, (c->heads * longest + c->dim) * 4);
    int32_t *ancestors_RT = arena_alloc(&s->scratch, block * (steps + 1) * sizeof *ancestors_RT);
    float *chunk = arena_alloc(&s->scratch, block * BLOCK_LOGITS * 4);
    if (s->scratch.failed || s->batch.failed)
        return 0;
    memcpy(step->parents_R, parents_R, rows * sizeof *parents_R);
    s->steps = steps;
    float *position_D = s->attention + c->heads * longest;
    for (int64_t first = 0; first < rows; first += block) {
        int64_t count = first + block < rows ? block : rows - first;
        int32_t *sources_R = ancestors_RT + block * steps;
        position_row(m, DECODER, steps - 1, position_D);
        for (int64_t r = 0; r < count; r++) {
            int32_t at = (int32_t)(first + r);
            for (int64_t t = steps - 1; t >= 0; t--)
                ancestors_RT[r * steps + t] = at, at = s->steps_T[t].parents_R[at];
            sources_R[r] = at;
            embed(m, DECODER, tokens_R[first + r], position_D, s->x + r * c->dim);
        }
        for (int64_t i = 0; i < c->decoder_layers; i++) {
            const Layer *layer = &m->layers[DECODER][i / c->layer_sharing];
            const Matrix *w = layer->matrices;
            const Norm *norm = &layer->norms[SELF_NORM], *cross = &layer->norms[CROSS_NORM];
            if (c->recurrent) {
                project_recurrence(s, layer, count);
                decoder_recurrence(s, i, first, count);
                add_recurrence(s, norm, count);
            } else {
                multiply(&w[QKV], count, norm_input(s, norm, count), s->qkv, 0, s->units);
                if (bf16)
                    decoder_self_attention(s, i, first, count, ancestors_RT, 1);
                else
                    decoder_self_attention(s, i, first, count, ancestors_RT, 0);
                add_output(s, &w[OUT], norm, s->context, count);
            }
            multiply(&w[CROSS_Q], count, norm_input(s, cross, count), s->qkv, 0, s->units);
            float *tracked = i == s->track && q->attention_RS ? q->attention_RS + first * s->max_tokens : 0;
            if (bf16)
                cross_attention(s, i / c->layer_sharing, count, sources_R, tracked, 1);
            else
                cross_attention(s, i / c->layer_sharing, count, sources_R, tracked, 0);
            add_output(s, &w[CROSS_OUT], cross, s->context, count);
            feed_forward(s, layer, count);
        }
        project(s, q, first, count, sources_R, chunk);
    }
    return 1;
}

/* Decodes the given targets of sentences first .. first + sentences - 1, `rows` tokens in all. */
static int decode_block(
    State *s, int64_t first, int64_t sentences, const int32_t *lengths, const int32_t *tokens, int64_t rows,
    int64_t first_row, const Request *q
) {
    const Model *m = s->m;
    const Config *c = &m->c;
    int64_t longest = round_up(rows > s->max_tokens ? rows : s->max_tokens, LANES);
    if (!reserve(s, rows, kv_bytes(c, rows, 0) + 2 * c->heads * longest * 4))
        return 0;
    int64_t block = rows < BLOCK_ROWS ? rows : BLOCK_ROWS;
    int32_t *sources_R = arena_alloc(&s->scratch, rows * sizeof *sources_R);
    float *chunk = arena_alloc(&s->scratch, block * BLOCK_LOGITS * 4);
    if (s->scratch.failed)
        return 0;
    for (int64_t b = 0, r = 0; b < sentences; b++)
        for (int64_t i = 0; i < lengths[b]; i++)
            sources_R[r++] = (int32_t)(first + b);
    embed_sentences(s, DECODER, lengths, sentences, tokens);
    for (int64_t i = 0; i < c->decoder_layers; i++) {
        int64_t distinct = i / c->layer_sharing;
        const Layer *layer = &m->layers[DECODER][distinct];
        const Matrix *w = layer->matrices;
        const Norm *norm = &layer->norms[SELF_NORM], *cross = &layer->norms[CROSS_NORM];
        if (c->recurrent) {
            project_recurrence(s, layer, rows);
            recurrence(s, lengths, sentences, rows);
            add_recurrence(s, norm, rows);
        } else {
            multiply(&w[QKV], rows, norm_input(s, norm, rows), s->qkv, 0, s->units);
            self_attention(s, DECODER, lengths, sentences);
            add_output(s, &w[OUT], norm, s->context, rows);
        }
        multiply(&w[CROSS_Q], rows, norm_input(s, cross, rows), s->qkv, 0, s->units);
        if (c->bf16)
            cross_attention(s, distinct, rows, sources_R, 0, 1);
        else
            cross_attention(s, distinct, rows, sources_R, 0, 0);
        add_output(s, &w[CROSS_OUT], cross, s->context, rows);
        feed_forward(s, layer, rows);
    }
    float *x = s->x;
    for (int64_t r = 0; r < rows; r += block) {
        int64_t count = r + block < rows ? block : rows - r;
        s->x = x + r * c->dim;
        project(s, q, first_row + r, count, sources_R + r, chunk);
    }
    return 1;
}

/* Writes the log-probability of each label, given the tokens of its sentence before it. `tokens` contains the targets
   of the sentences of `init_search_state`, each with `lengths_B` tokens, the first of which is the start token; `labels`
   contains the token that follows each of them. Returns 0 if out of memory. */
int score_targets(
    State *s, int64_t sentences, const int32_t *lengths_B, const int32_t *tokens, const int32_t *labels, float *log_p
) {
    Request q = {.num_gathered = 1, .gather_RP = labels, .gathered_log_p_RP = log_p};
    int64_t first_row = 0;
    for (int64_t first = 0, end; first < sentences; first = end) {
        int64_t rows = lengths_B[first];
        for (end = first + 1; end < sentences && rows + lengths_B[end] <= BLOCK_ROWS; end++)
            rows += lengths_B[end];
        if (!decode_block(s, first, end - first, lengths_B + first, tokens + first_row, rows, first_row, &q))
            return 0;
        first_row += rows;
    }
    return 1;
}

/* ---- initialization, hardware, and single matrices to measure and test */

int lanes(void) { return LANES; }

/* Must be called once before all other functions. Linux enables the matrix unit only on request. */
void engine_init(void) {
#ifdef AMX
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    amx_enabled = !syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA);
#endif
}

/* Hardware support for products of a type: 3 the matrix unit, 2 a dedicated instruction, 1 several instructions. */
int hardware_support(int type) {
    if (amx_enabled && type != FP32)
        return 3;
#if LANES == 16 && defined __AVX512BF16__
    if (type == BF16)
        return 2;
#endif
#if defined DOT_BYTES || defined __ARM_FEATURE_DOTPROD
    if (type == INT8)
        return 2;
#endif
    return type == FP32 ? 2 : 1;
}

/* A model that consists of an output matrix only. */
Model *matrix_new(int64_t outputs, int64_t inputs, int type, const float *w_OI, const float *bias_O) {
    Model *m = calloc(1, sizeof *m);
    if (m)
        pack(&m->arena, &m->output, outputs, inputs, type, (Weight){w_OI, 0}, bias_O, 0);
    return m && m->arena.failed ? model_free(m), (Model *)0 : m;
}

/* y = x W' + b. Returns 0 if out of memory. */
int matrix_multiply(const Model *m, int64_t rows, const float *x_RI, float *y_RO) {
    uint32_t *units = malloc(rows * (m->output.units + 1) * 4);
    if (units)
        multiply(&m->output, rows, x_RI, y_RO, 0, units);
    free(units);
    return units != 0;
}
