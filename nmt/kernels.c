/* What a search computes: kernels.py compiles and calls it.

   A row of each loop is computed by itself, in one order, so a translation does not depend on its company. Activations
   are float32 or bfloat16 (`half`); what is no product of matrices is computed in float32.

   Letters: B sentences, N sources, S source tokens, R rows, W rows of a sentence, T target positions, H heads, K head
   width, D = H*K, V vocabulary, C candidates, I inputs, O outputs. */

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 8")
#define CHUNK 128

/* How many float32 a vector has, and a tile's vectors of outputs: ROWS times as many sums stay in registers. */
#define ROWS 6
#if defined __AVX512F__
#define LANES 16
#define PANELS 4
#elif defined __AVX__
#define LANES 8
#define PANELS 2
#elif defined __aarch64__
#define LANES 4
#define PANELS 4
#else
#define LANES 4
#define PANELS 2
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t Bits __attribute__((vector_size(4 * LANES)));
typedef float Four __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

INLINE float get(const void *x, int64_t i, int half) {
    if (!half)
        return ((const float *)x)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)x)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds to nearest, ties to even. A NaN stays one: those that come of bfloat16 have no bits that could carry over. */
INLINE void put(void *x, int64_t i, float value, int half) {
    if (!half) {
        ((float *)x)[i] = value;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    ((uint16_t *)x)[i] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* e^x for x <= 0 to a unit in the last place or two, written so that compilers make it of vectors: 2^n * e^rest, the
   rest by the polynomial of the Cephes library's expf. Below -87 it is e^-87, which is nothing beside the largest. */
INLINE float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = floorf(x * 1.44269504f + 0.5f);
    float rest = x - n * 0.693359375f + n * 2.12194440e-4f;
    float sum = 1.9875691500e-4f;
    sum = sum * rest + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    sum = sum * rest * rest + rest + 1.0f;
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return sum * power;
}

INLINE Floats load(const void *x, int64_t i, int half) {
    Floats values;
    if (half) {
        Halves halves;
        memcpy(&halves, (const uint16_t *)x + i, sizeof halves);
        return (Floats)(__builtin_convertvector(halves, Bits) << 16);
    }
    memcpy(&values, (const float *)x + i, sizeof values);
    return values;
}

/* As put. */
INLINE void store(void *x, int64_t i, Floats values, int half) {
    if (half) {
        Bits bits = (Bits)values;
        Halves halves = __builtin_convertvector((bits + 0x7fff + (bits >> 16 & 1)) >> 16, Halves);
        memcpy((uint16_t *)x + i, &halves, sizeof halves);
    } else
        memcpy((float *)x + i, &values, sizeof values);
}

/* What compilers make no vectors of is written in vectors: sums, whose order they must keep, and the largest. */

INLINE float total(Floats lanes) {
    Four parts[LANES / 4];
    memcpy(parts, &lanes, sizeof lanes);
    for (int n = LANES / 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            parts[i] += parts[i + n];
    return (parts[0][0] + parts[0][2]) + (parts[0][1] + parts[0][3]);
}

INLINE float sum_of(const float *x, int64_t count) {
    Floats lanes = {0};
    float rest = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        lanes += load(x, i, 0);
    for (; i < count; i++)
        rest += x[i];
    return total(lanes) + rest;
}

INLINE float dot(const float *q, const void *k, int64_t first, int64_t count, int half) {
    Floats lanes = {0};
    float rest = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        lanes += load(q, i, 0) * load(k, first + i, half);
    for (; i < count; i++)
        rest += q[i] * get(k, first + i, half);
    return total(lanes) + rest;
}

/* The largest of `count` numbers; NaN if one is. */
INLINE float largest(const void *x, int64_t first, int64_t count, int half) {
    Floats most = {0};
    Bits none = {0};
    float last = -INFINITY;
    int64_t i = 0;
    most += last;
    for (; i + LANES <= count; i += LANES) {
        Floats values = load(x, first + i, half);
        Bits above = (Bits)(values > most);
        most = (Floats)((above & (Bits)values) | (~above & (Bits)most));
        none |= (Bits)(values != values);
    }
    for (; i < count; i++) {
        float value = get(x, first + i, half);
        last = value > last || value != value ? value : last;
    }
    for (int j = 0; j < LANES; j++) {
        last = most[j] > last ? most[j] : last;
        last = none[j] ? NAN : last;
    }
    return last;
}

INLINE int64_t filled(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

/* Turns scores into weights that sum to one. There is room for whole vectors of them, and what fills them up weighs
   nothing beside the largest. */
INLINE void softmax(float *scores, int64_t count) {
    int64_t room = filled(count);
    for (int64_t i = count; i < room; i++)
        scores[i] = -INFINITY;
    float most = largest(scores, 0, room, 0);
    for (int64_t i = 0; i < room; i++)
        scores[i] = exponential(scores[i] - most);
    float part = 1 / sum_of(scores, room);
    for (int64_t i = 0; i < room; i++)
        scores[i] *= part;
}

INLINE void add(float *restrict seen, float weight, const void *restrict v, int64_t first, int64_t width, int half) {
    for (int64_t i = 0; i < width; i++)
        seen[i] += weight * get(v, first + i, half);
}

INLINE void target(
    int64_t layer, int64_t rows, int64_t steps, int64_t heads, int64_t width, const void *qkv_R3HK,
    void *const *kept_TL2RHK, const int64_t *rows_T, const int32_t *from_RT, void *seen_RHK, float *scratch, int half
) {
    int64_t dim = heads * width, size = half ? 2 : 4, room = filled(steps);
    float scale = 1.0f / sqrtf((float)width);
    float *q_HK = scratch, *sum_HK = scratch + dim, *weights_HT = scratch + 2 * dim;
    char *new_2RHK = (char *)kept_TL2RHK[steps - 1] + layer * 2 * rows * dim * size;
    for (int64_t r = 0; r < rows; r++)
        for (int kv = 0; kv < 2; kv++)
            memcpy(new_2RHK + (kv * rows + r) * dim * size,
                   (const char *)qkv_R3HK + (r * 3 + 1 + kv) * dim * size, dim * size);
    for (int64_t r = 0; r < rows; r++) {
        const int32_t *from_T = from_RT + r * steps;
        for (int64_t i = 0; i < dim; i++)
            q_HK[i] = get(qkv_R3HK, r * 3 * dim + i, half) * scale, sum_HK[i] = 0;
        for (int64_t t = 0; t < steps; t++)
            for (int64_t h = 0; h < heads; h++)
                weights_HT[h * room + t] = dot(
                    q_HK + h * width, kept_TL2RHK[t], (2 * layer * rows_T[t] + from_T[t]) * dim + h * width, width, half
                );
        for (int64_t h = 0; h < heads; h++)
            softmax(weights_HT + h * room, steps);
        for (int64_t t = 0; t < steps; t++)
            for (int64_t h = 0; h < heads; h++)
                add(sum_HK + h * width, weights_HT[h * room + t], kept_TL2RHK[t],
                    ((2 * layer + 1) * rows_T[t] + from_T[t]) * dim + h * width, width, half);
        for (int64_t i = 0; i < dim; i++)
            put(seen_RHK, r * dim + i, sum_HK[i], half);
    }
}

/* Attention of one new position of each row to the target so far, itself included: softmax(q k' / sqrt K) v (Vaswani
   et al. 2017, equation 1). The keys and values of a step stay where they were put, [layers, 2, rows_T, H, K]; those of
   the new one are put into the last. `from_RT` says in which row of each step a row's past lies. */
void attend_target(
    int64_t layer, int64_t rows, int64_t steps, int64_t heads, int64_t width, const void *qkv_R3HK,
    void *const *kept_TL2RHK, const int64_t *rows_T, const int32_t *from_RT, void *seen_RHK, float *scratch, int half
) {
    if (half)
        target(layer, rows, steps, heads, width, qkv_R3HK, kept_TL2RHK, rows_T, from_RT, seen_RHK, scratch, 1);
    else
        target(layer, rows, steps, heads, width, qkv_R3HK, kept_TL2RHK, rows_T, from_RT, seen_RHK, scratch, 0);
}

INLINE void source(
    int64_t sentences, int64_t width_W, int64_t heads, int64_t tokens, int64_t width, const void *q_BWHK,
    const void *k_NHSK, const void *v_NHSK, const int32_t *tokens_N, const int32_t *from_B, void *seen_BWHK,
    float *scratch, int half
) {
    float scale = 1.0f / sqrtf((float)width);
    float *q_K = scratch, *sum_K = scratch + width, *weights_S = scratch + 2 * width;
    for (int64_t b = 0; b < sentences; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t w = 0; w < width_W; w++) {
                int64_t at = ((b * width_W + w) * heads + h) * width;
                int64_t first = (from_B[b] * heads + h) * tokens * width, count = tokens_N[from_B[b]];
                for (int64_t i = 0; i < width; i++)
                    q_K[i] = get(q_BWHK, at + i, half) * scale, sum_K[i] = 0;
                for (int64_t s = 0; s < count; s++)
                    weights_S[s] = dot(q_K, k_NHSK, first + s * width, width, half);
                softmax(weights_S, count);
                for (int64_t s = 0; s < count; s++)
                    add(sum_K, weights_S[s], v_NHSK, first + s * width, width, half);
                for (int64_t i = 0; i < width; i++)
                    put(seen_BWHK, at + i, sum_K[i], half);
            }
}

/* Attention of the W rows of each sentence to the first `tokens_N` positions of its source, which is that of N that
   `from_B` says. */
void attend_source(
    int64_t sentences, int64_t width_W, int64_t heads, int64_t tokens, int64_t width, const void *q_BWHK,
    const void *k_NHSK, const void *v_NHSK, const int32_t *tokens_N, const int32_t *from_B, void *seen_BWHK,
    float *scratch, int half
) {
    if (half)
        source(sentences, width_W, heads, tokens, width, q_BWHK, k_NHSK, v_NHSK, tokens_N, from_B, seen_BWHK, scratch,
               1);
    else
        source(sentences, width_W, heads, tokens, width, q_BWHK, k_NHSK, v_NHSK, tokens_N, from_B, seen_BWHK, scratch,
               0);
}

INLINE void within(
    int64_t sentences, int64_t tokens, int64_t heads, int64_t width, const void *qkv_BS3HK, const int32_t *tokens_B,
    void *seen_BSHK, float *scratch, int half
) {
    int64_t dim = heads * width, wide = filled(width);
    float scale = 1.0f / sqrtf((float)width);
    for (int64_t b = 0; b < sentences; b++)
        for (int64_t h = 0; h < heads; h++) {
            int64_t count = tokens_B[b], room = filled(count);
            float *weights_S = scratch, *k_KS = weights_S + room, *v_SK = k_KS + width * room;
            memset(k_KS, 0, (width * room + count * wide) * sizeof(float));
            for (int64_t s = 0; s < count; s++) {
                int64_t k = (((b * tokens + s) * 3 + 1) * heads + h) * width;
                for (int64_t i = 0; i < width; i++) {
                    k_KS[i * room + s] = get(qkv_BS3HK, k + i, half) * scale;
                    v_SK[s * wide + i] = get(qkv_BS3HK, k + dim + i, half);
                }
            }
            for (int64_t s = 0; s < tokens; s++) {
                int64_t q = ((b * tokens + s) * 3 * heads + h) * width, to = ((b * tokens + s) * heads + h) * width;
                if (s < count) {
                    for (int64_t other = 0; other < room; other += LANES) {
                        Floats sums = {0};
                        for (int64_t i = 0; i < width; i++)
                            sums += get(qkv_BS3HK, q + i, half) * load(k_KS, i * room + other, 0);
                        store(weights_S, other, sums, 0);
                    }
                    softmax(weights_S, count);
                }
                for (int64_t i = 0; i < width; i += LANES) {
                    Floats sums = {0};
                    for (int64_t other = 0; s < count && other < count; other++)
                        sums += weights_S[other] * load(v_SK, other * wide + i, 0);
                    for (int64_t j = 0; j < LANES && i + j < width; j++)
                        put(seen_BSHK, to + i + j, sums[j], half);
                }
            }
        }
}

/* Attention of each of the first `tokens_B` positions of a sentence to all of them. What padding gathers is zero. */
void attend_within(
    int64_t sentences, int64_t tokens, int64_t heads, int64_t width, const void *qkv_BS3HK, const int32_t *tokens_B,
    void *seen_BSHK, float *scratch, int half
) {
    if (half)
        within(sentences, tokens, heads, width, qkv_BS3HK, tokens_B, seen_BSHK, scratch, 1);
    else
        within(sentences, tokens, heads, width, qkv_BS3HK, tokens_B, seen_BSHK, scratch, 0);
}

INLINE void norm(
    int64_t rows, int64_t dim, const void *x_RD, const void *gain_D, const void *bias_D, float epsilon, void *out_RD,
    int half
) {
    for (int64_t r = 0; r < rows; r++) {
        int64_t first = r * dim, whole = dim - dim % LANES;
        Floats lanes = {0}, squares = {0};
        float sum = 0, square = 0;
        for (int64_t i = 0; i < whole; i += LANES)
            lanes += load(x_RD, first + i, half);
        for (int64_t i = whole; i < dim; i++)
            sum += get(x_RD, first + i, half);
        float mean = (total(lanes) + sum) / dim;
        for (int64_t i = 0; i < whole; i += LANES) {
            Floats off = load(x_RD, first + i, half) - mean;
            squares += off * off;
        }
        for (int64_t i = whole; i < dim; i++) {
            float off = get(x_RD, first + i, half) - mean;
            square += off * off;
        }
        float scale = 1 / sqrtf((total(squares) + square) / dim + epsilon);
        for (int64_t i = 0; i < dim; i++) {
            float value = (get(x_RD, first + i, half) - mean) * scale;
            put(out_RD, first + i, value * get(gain_D, i, half) + get(bias_D, i, half), half);
        }
    }
}

/* (x - mean) / sqrt(variance + epsilon) * gain + bias (Ba et al. 2016, equation 4). */
void layer_norm(
    int64_t rows, int64_t dim, const void *x_RD, const void *gain_D, const void *bias_D, float epsilon, void *out_RD,
    int half
) {
    if (half)
        norm(rows, dim, x_RD, gain_D, bias_D, epsilon, out_RD, 1);
    else
        norm(rows, dim, x_RD, gain_D, bias_D, epsilon, out_RD, 0);
}

/* Turns logits into log-probabilities: their log-softmax. */
void log_softmax(int64_t rows, int64_t vocabulary, float *x_RV) {
    float parts[CHUNK];
    for (int64_t r = 0; r < rows; r++) {
        float *x_V = x_RV + r * vocabulary;
        float most = largest(x_V, 0, vocabulary, 0), sum = 0;
        for (int64_t first = 0; first < vocabulary; first += CHUNK) {
            int64_t count = first + CHUNK < vocabulary ? CHUNK : vocabulary - first;
            for (int64_t i = 0; i < count; i++)
                parts[i] = exponential(x_V[first + i] - most);
            sum += sum_of(parts, count);
        }
        float log_sum = logf(sum);
        for (int64_t v = 0; v < vocabulary; v++)
            x_V[v] = x_V[v] - most - log_sum;
    }
}

/* Whether x comes before y where the largest comes first; NaN does before all else, or a search would not see it. */
INLINE int before(float x, float y) { return x > y || (x != x && y == y); }

/* The C largest scores + before_BW of the W rows of each sentence, best first, and where they stand, w*V + v; of equal
   ones the first. There are C at least. */
void top_k(
    int64_t sentences, int64_t width_W, int64_t vocabulary, int64_t candidates, const float *scores_BWV,
    const float *before_BW, float *best_BC, int64_t *at_BC
) {
    for (int64_t b = 0; b < sentences; b++) {
        float *best_C = best_BC + b * candidates;
        int64_t *at_C = at_BC + b * candidates;
        int64_t found = 0;
        for (int64_t w = 0; w < width_W; w++) {
            const float *scores_V = scores_BWV + (b * width_W + w) * vocabulary;
            float plus = before_BW[b * width_W + w];
            for (int64_t first = 0; first < vocabulary; first += CHUNK) {
                int64_t end = first + CHUNK < vocabulary ? first + CHUNK : vocabulary;
                if (found == candidates &&
                    !before(largest(scores_V, first, end - first, 0) + plus, best_C[candidates - 1]))
                    continue;
                for (int64_t v = first; v < end; v++) {
                    float score = scores_V[v] + plus;
                    if (found == candidates && !before(score, best_C[candidates - 1]))
                        continue;
                    int64_t c = found < candidates ? found++ : candidates - 1;
                    for (; c > 0 && before(score, best_C[c - 1]); c--)
                        best_C[c] = best_C[c - 1], at_C[c] = at_C[c - 1];
                    best_C[c] = score, at_C[c] = w * vocabulary + v;
                }
            }
        }
    }
}

/* Products with matrices: y = x W' + b. W lies as [O / LANES, I, LANES], its inputs in units of 32 bits that one
   instruction multiplies and adds: one float32, two bfloat16 or four int8. */

enum { FLOAT, HALF, INT8 };
#if defined __AVX512BF16__ && !defined __AMX_BF16__ /* which does many more at once, and has oneDNN's routines */
#define MULTIPLIES_HALF 1
#else
#define MULTIPLIES_HALF 0
#endif
#ifdef __AVX512VNNI__
#define MULTIPLIES_INT8 1
#else
#define MULTIPLIES_INT8 0
#endif

typedef struct {
    int64_t rows, units, outputs;
    const uint32_t *x, *w;
    const float *bias;    /* or none; this and the next two are filled up, as W is, to whole tiles */
    const float *scale_O; /* of int8: what a whole number of W stands for, */
    const int32_t *sum_O; /* 128 times the sum of each of its rows, */
    const float *scale_R; /* and what one of x does, which are 128 larger than they should be */
    const void *plus;     /* what is added to y, or none */
    void *y;
    int half, relu;
} Product;

/* Whether matrices of such elements are multiplied here. */
int multiplies(int type) {
    return type == FLOAT || (type == HALF && MULTIPLIES_HALF) || (type == INT8 && MULTIPLIES_INT8);
}

int lanes(void) { return LANES; }

/* The outputs of a tile. */
int block(void) { return PANELS * LANES; }

INLINE Floats accumulated(Floats sums, uint32_t x, Bits w, int type) {
    Bits xs = x - (Bits){0};
    if (type == FLOAT)
        return sums + (Floats)xs * (Floats)w;
#if MULTIPLIES_HALF
    if (type == HALF)
        return (Floats)_mm512_dpbf16_ps((__m512)sums, (__m512bh)xs, (__m512bh)w);
#endif
#if MULTIPLIES_INT8
    if (type == INT8)
        return (Floats)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)xs, (__m512i)w);
#endif
    return sums;
}

/* Makes outputs of sums: those of row r from o on, a vector of them, or as many as there are. Inlined, it would take
   seconds to compile. */
static __attribute__((noinline)) void finish(const Product *p, int64_t r, int64_t o, const Floats *from, int type) {
    int64_t at = r * p->outputs + o, count = p->outputs - o;
    float rest[LANES];
    Floats sums = *from;
    if (type == INT8) {
        Ints extra;
        memcpy(&extra, p->sum_O + o, sizeof extra);
        sums = __builtin_convertvector((Ints)sums - extra, Floats) * load(p->scale_O, o, 0) * p->scale_R[r];
    }
    if (p->bias)
        sums += load(p->bias, o, 0);
    if (p->relu) /* as in PyTorch, NaN stays */
        sums = (Floats)((Bits)sums & ~(Bits)(sums < 0));
    if (count >= LANES)
        store(p->y, at, p->plus ? sums + load(p->plus, at, p->half) : sums, p->half);
    else {
        memcpy(rest, &sums, sizeof rest);
        for (int64_t i = 0; i < count; i++)
            put(p->y, at + i, p->plus ? rest[i] + get(p->plus, at + i, p->half) : rest[i], p->half);
    }
}

INLINE void tile(const Product *p, int64_t r, int64_t o, int rows, int type) {
    const uint32_t *x = p->x + r * p->units, *w = p->w + o * p->units;
    Floats sums[ROWS][PANELS], done[ROWS][PANELS]; /* in registers, and where they have addresses */
    UNROLLED for (int i = 0; i < rows; i++)
        UNROLLED for (int j = 0; j < PANELS; j++)
            sums[i][j] = (Floats){0};
    for (int64_t unit = 0; unit < p->units; unit++) {
        Bits ws[PANELS];
        UNROLLED for (int j = 0; j < PANELS; j++)
            memcpy(&ws[j], w + (j * p->units + unit) * LANES, sizeof ws[j]);
        UNROLLED for (int i = 0; i < rows; i++)
            UNROLLED for (int j = 0; j < PANELS; j++)
                sums[i][j] = accumulated(sums[i][j], x[i * p->units + unit], ws[j], type);
    }
    UNROLLED for (int i = 0; i < rows; i++)
        UNROLLED for (int j = 0; j < PANELS; j++)
            done[i][j] = sums[i][j];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < PANELS; j++)
            finish(p, r + i, o + j * LANES, &done[i][j], type);
}

INLINE void product(const Product *p, int type) {
    for (int64_t o = 0; o < p->outputs; o += PANELS * LANES)
        for (int64_t r = 0; r < p->rows;) {
            int64_t left = p->rows - r;
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

/* y = x W' + b, or the larger of that and 0, and `plus` added, which is of y's type. */
void linear(
    int64_t rows, int64_t inputs, int64_t outputs, const void *x_RI, const void *w, const float *bias_O,
    const void *plus_RO, void *y_RO, int relu, int half_y, int half
) {
    Product p = {rows, half ? inputs / 2 : inputs, outputs, x_RI, w, bias_O, 0, 0, 0, plus_RO, y_RO, half_y, relu};
    if (half)
        product(&p, HALF);
    else
        product(&p, FLOAT);
}

/* As `linear` in float32, W in int8. Each row of x is rounded to whole numbers, the largest of which becomes 127. */
void linear_int8(
    int64_t rows, int64_t inputs, int64_t outputs, const float *x_RI, const void *w, const float *bias_O,
    const float *plus_RO, float *y_RO, int relu, const float *scale_O, const int32_t *sum_O, uint8_t *whole_RI,
    float *scale_R
) {
    for (int64_t r = 0; r < rows; r++) {
        const float *x_I = x_RI + r * inputs;
        uint32_t bits = 0; /* those of the largest size, which compare as sizes do; NaN is above all */
        for (int64_t i = 0; i < inputs; i++) {
            uint32_t size;
            memcpy(&size, x_I + i, sizeof size);
            size &= 0x7fffffff;
            bits = size > bits ? size : bits;
        }
        float most;
        memcpy(&most, &bits, sizeof most);
        float times = most > 0 ? 127 / most : 0;
        for (int64_t i = 0; i < inputs; i++)
            whole_RI[r * inputs + i] = (uint8_t)((int32_t)rintf(x_I[i] * times) + 128);
        scale_R[r] = most / 127;
    }
    Product p = {
        rows, inputs / 4, outputs, (const void *)whole_RI, w, bias_O, scale_O, sum_O, scale_R, plus_RO, y_RO, 0, relu
    };
    product(&p, INT8);
}
