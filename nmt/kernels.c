/* The loops of a search's step that PyTorch would make of many operations: kernels.py compiles and calls them.

   A row of each loop is computed by itself, in one order, so a translation does not depend on its company. Activations
   are float32 or bfloat16 (`half`); all is computed in float32.

   Letters: B sentences, S source tokens, R rows, W rows of a sentence, T target positions, H heads, K head width,
   D = H*K, V vocabulary, C candidates. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define LANES 16
#define CHUNK 128

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t Bits __attribute__((vector_size(4 * LANES)));
typedef float Quarter __attribute__((vector_size(LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

INLINE float get(const void *x, int64_t i, int half) {
    if (!half)
        return ((const float *)x)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)x)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds to nearest, ties to even; what is no number stays none. */
INLINE void put(void *x, int64_t i, float value, int half) {
    if (!half) {
        ((float *)x)[i] = value;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = value == value ? bits + 0x7fff + (bits >> 16 & 1) : 0x7fc00000;
    ((uint16_t *)x)[i] = bits >> 16;
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

/* What compilers make no vectors of is written in vectors: sums, whose order they must keep, and the largest. */

INLINE float total(Floats lanes) {
    Quarter parts[4];
    memcpy(parts, &lanes, sizeof lanes);
    parts[0] += parts[2], parts[1] += parts[3], parts[0] += parts[1];
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

/* Turns scores into weights that sum to one. */
INLINE void softmax(float *scores, int64_t count) {
    float most = largest(scores, 0, count, 0);
    for (int64_t i = 0; i < count; i++)
        scores[i] = exponential(scores[i] - most);
    float part = 1 / sum_of(scores, count);
    for (int64_t i = 0; i < count; i++)
        scores[i] *= part;
}

INLINE void add(float *restrict seen, float weight, const void *restrict v, int64_t first, int64_t width, int half) {
    for (int64_t i = 0; i < width; i++)
        seen[i] += weight * get(v, first + i, half);
}

INLINE void target(
    int64_t layer, int64_t rows, int64_t steps, int64_t heads, int64_t width, const void *qkv_R3HK, void *const *kept_TL2RHK,
    const int64_t *rows_T, const int32_t *from_RT, void *seen_RHK, float *scratch, int half
) {
    int64_t dim = heads * width, size = half ? 2 : 4;
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
                weights_HT[h * steps + t] = dot(
                    q_HK + h * width, kept_TL2RHK[t], (2 * layer * rows_T[t] + from_T[t]) * dim + h * width, width, half
                );
        for (int64_t h = 0; h < heads; h++)
            softmax(weights_HT + h * steps, steps);
        for (int64_t t = 0; t < steps; t++)
            for (int64_t h = 0; h < heads; h++)
                add(sum_HK + h * width, weights_HT[h * steps + t], kept_TL2RHK[t],
                    ((2 * layer + 1) * rows_T[t] + from_T[t]) * dim + h * width, width, half);
        for (int64_t i = 0; i < dim; i++)
            put(seen_RHK, r * dim + i, sum_HK[i], half);
    }
}

/* Attention of one new position of each row to the target so far, itself included: softmax(q k' / sqrt K) v (Vaswani
   et al. 2017, equation 1). The keys and values of a step stay where they were put, [layers, 2, rows_T, H, K]; those of
   the new one are put into the last. `from_RT` says in which row of each step a row's past lies. */
void attend_target(
    int64_t layer, int64_t rows, int64_t steps, int64_t heads, int64_t width, const void *qkv_R3HK, void *const *kept_TL2RHK,
    const int64_t *rows_T, const int32_t *from_RT, void *seen_RHK, float *scratch, int half
) {
    if (half)
        target(layer, rows, steps, heads, width, qkv_R3HK, kept_TL2RHK, rows_T, from_RT, seen_RHK, scratch, 1);
    else
        target(layer, rows, steps, heads, width, qkv_R3HK, kept_TL2RHK, rows_T, from_RT, seen_RHK, scratch, 0);
}

INLINE void source(
    int64_t sentences, int64_t width_W, int64_t heads, int64_t tokens, int64_t width, const void *q_BWHK,
    const void *k_BHSK, const void *v_BHSK, const int32_t *tokens_B, void *seen_BWHK, float *scratch, int half
) {
    float scale = 1.0f / sqrtf((float)width);
    float *q_K = scratch, *sum_K = scratch + width, *weights_S = scratch + 2 * width;
    for (int64_t b = 0; b < sentences; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t w = 0; w < width_W; w++) {
                int64_t at = ((b * width_W + w) * heads + h) * width, first = (b * heads + h) * tokens * width;
                for (int64_t i = 0; i < width; i++)
                    q_K[i] = get(q_BWHK, at + i, half) * scale, sum_K[i] = 0;
                for (int64_t s = 0; s < tokens_B[b]; s++)
                    weights_S[s] = dot(q_K, k_BHSK, first + s * width, width, half);
                softmax(weights_S, tokens_B[b]);
                for (int64_t s = 0; s < tokens_B[b]; s++)
                    add(sum_K, weights_S[s], v_BHSK, first + s * width, width, half);
                for (int64_t i = 0; i < width; i++)
                    put(seen_BWHK, at + i, sum_K[i], half);
            }
}

/* Attention of the W rows of each sentence to the first `tokens_B` positions of its source. */
void attend_source(
    int64_t sentences, int64_t width_W, int64_t heads, int64_t tokens, int64_t width, const void *q_BWHK,
    const void *k_BHSK, const void *v_BHSK, const int32_t *tokens_B, void *seen_BWHK, float *scratch, int half
) {
    if (half)
        source(sentences, width_W, heads, tokens, width, q_BWHK, k_BHSK, v_BHSK, tokens_B, seen_BWHK, scratch, 1);
    else
        source(sentences, width_W, heads, tokens, width, q_BWHK, k_BHSK, v_BHSK, tokens_B, seen_BWHK, scratch, 0);
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

INLINE void normalised(int64_t rows, int64_t vocabulary, const void *restrict logits_RV, float *restrict log_p_RV, int half) {
    for (int64_t r = 0; r < rows; r++) {
        int64_t first = r * vocabulary;
        float most = largest(logits_RV, first, vocabulary, half);
        for (int64_t v = 0; v < vocabulary; v++)
            log_p_RV[first + v] = exponential(get(logits_RV, first + v, half) - most);
        float log_sum = logf(sum_of(log_p_RV + first, vocabulary));
        for (int64_t v = 0; v < vocabulary; v++)
            log_p_RV[first + v] = get(logits_RV, first + v, half) - most - log_sum;
    }
}

/* Log-probabilities of logits: their log-softmax. */
void log_softmax(int64_t rows, int64_t vocabulary, const void *logits_RV, float *log_p_RV, int half) {
    if (half)
        normalised(rows, vocabulary, logits_RV, log_p_RV, 1);
    else
        normalised(rows, vocabulary, logits_RV, log_p_RV, 0);
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
