// Softmax, scores and importance; part of kernels_impl.h, in its namespace and with its
// macros.

H2O_TARGET void update_scores(
    const Policy& policy, const float* m, int count, float* scores) {
  const float decay = policy.decay();
  const bool peak = policy.score == Score::peak;
  const Vector share = splat(1.0f - decay);
  for (int i = 0; i < count; i += lanes) {
    Vector seen = load(m + i, count - i), old = load(scores + i, count - i);
    Vector faded = old * decay;
    Vector updated = peak ? (faded > seen ? faded : seen) : faded + seen * share;
    updated = old < Vector{} ? seen : updated;
    // The comparison is also false for NaN.
    store(scores + i, seen < infinity ? updated : old, count - i);
  }
}

H2O_TARGET float largest(const float* values, int count) {
  Vector most = splat(lowest);
  for (int i = 0; i < count; i += lanes) {
    Vector v = load(values + i, count - i, lowest);
    most = v > most ? v : most;
  }
  return largest_lane(most);
}

H2O_TARGET float hide_not_finite(float* logits, int count) {
  Vector top = splat(lowest);
  for (int i = 0; i < count; i += lanes) {
    Vector v = load(logits + i, count - i, lowest);
    v = v - v == Vector{} ? v : splat(lowest);
    top = v > top ? v : top;
    store(logits + i, v, count - i);
  }
  return largest_lane(top);
}

/// exp by range reduction to |r| <= ln(2)/2 and a polynomial of degree 6 (the
/// coefficients are those of Cephes' expf); within 2 ulp. NaN stays NaN.
H2O_INLINE Vector exponential(Vector x) {
  const Vector rounder = splat(12582912.0f); // 1.5 * 2^23: adding it rounds to an integer
  Vector shifted = x * 1.44269504088896341f + rounder;
  Vector whole = shifted - rounder;
  Vector r = x - whole * 0.693359375f;
  r = r - whole * -2.12194440e-4f;
  Vector y = splat(1.9875691500e-4f);
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  // The exponent is unsigned, because it may overflow: for x below -87 and for NaN, whose
  // results are replaced below.
  WordVector exponent =
      __builtin_bit_cast(WordVector, shifted) - __builtin_bit_cast(WordVector, rounder);
  WordVector bits = __builtin_bit_cast(WordVector, y) + (exponent << 23);
  Vector result = __builtin_bit_cast(Vector, bits);
  result = x < splat(-87.0f) ? Vector{} : result;
  return x != x ? x : result;
}

H2O_TARGET float exp_shifted(const float* values, float shift, int count, float* out) {
  Vector total = {};
  for (int i = 0; i < count; i += lanes) {
    Vector e = exponential(load(values + i, count - i, lowest) - shift);
    store(out + i, e, count - i);
    total += e;
  }
  return sum_lanes(total);
}

H2O_TARGET void add_scaled(const float* values, float factor, int count, float* sum) {
  for (int i = 0; i < count; i += lanes) {
    const int n = count - i;
    store(sum + i, load(sum + i, n) + load(values + i, n) * factor, n);
  }
}

H2O_TARGET void add_scaled_abs(const float* values, float factor, int count, float* sum) {
  for (int i = 0; i < count; i += lanes) {
    Vector v = load(values + i, count - i);
    v = v < Vector{} ? -v : v;
    v = v >= splat(-lowest) ? Vector{} : v;
    store(sum + i, load(sum + i, count - i) + v * factor, count - i);
  }
}

H2O_TARGET float importance(
    const Policy& policy,
    const HeadLedger& ledger,
    int count,
    int recent_from,
    float* out) {
  Vector least = splat(infinity);
  for (int i = 0; i < count; i += lanes) {
    const int rest = count - i;
    Vector value = load(ledger.scores + i, rest);
    // Lanes behind the last row count as protected.
    IntVector position =
        load(ledger.positions + i, rest, std::numeric_limits<int32_t>::max());
    IntVector stays = (position < policy.sink_size) | (position >= recent_from);
    for (const auto& [begin, end] : policy.pinned) {
      stays |= (position >= begin) & (position < end);
    }
    value = stays ? splat(infinity) : value;
    store(out + i, value, rest);
    least = value < least ? value : least;
  }
  return -largest_lane(-least);
}
