// Softmax, scores and importance; part of kernels_impl.h, in its namespace and with its
// macros.

H2O_TARGET void update_scores(
    const Policy& policy, const float* m, int count, float* scores) {
  const float decay = policy.decay;
  const bool peak = policy.score == Score::peak;
  const Vector infinity = splat(std::numeric_limits<float>::infinity());
  const Vector share = splat(1.0f - decay);
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    Vector seen = load(m + i), old = load(scores + i), faded = old * decay;
    Vector updated = peak ? (faded > seen ? faded : seen) : faded + seen * share;
    updated = old < Vector{} ? seen : updated;
    store(scores + i, seen < infinity ? updated : old); // also false for NaN
  }
  for (; i < count; ++i) {
    if (!std::isfinite(m[i])) {
      continue;
    }
    float faded = decay * scores[i];
    float updated = peak ? std::max(faded, m[i]) : faded + (1.0f - decay) * m[i];
    scores[i] = scores[i] < 0.0f ? m[i] : updated;
  }
}

H2O_TARGET float largest(const float* values, int count) {
  float result = lowest;
  int i = 0;
  if (count >= lanes) {
    Vector most = load(values);
    for (i = lanes; i + lanes <= count; i += lanes) {
      Vector v = load(values + i);
      most = v > most ? v : most;
    }
    for (int lane = 0; lane < lanes; ++lane) {
      result = std::max(result, most[lane]);
    }
  }
  for (; i < count; ++i) {
    result = std::max(result, values[i]);
  }
  return result;
}

H2O_TARGET float hide_not_finite(float* logits, int count, float* most) {
  Vector top = splat(lowest);
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    Vector v = load(logits + i), old = load(most + i);
    v = v - v == Vector{} ? v : splat(lowest);
    top = v > top ? v : top;
    store(logits + i, v);
    store(most + i, v > old ? v : old);
  }
  float result = lowest;
  for (int lane = 0; lane < lanes; ++lane) {
    result = std::max(result, top[lane]);
  }
  for (; i < count; ++i) {
    logits[i] = std::isfinite(logits[i]) ? logits[i] : lowest;
    most[i] = std::max(most[i], logits[i]);
    result = std::max(result, logits[i]);
  }
  return result;
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
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    Vector e = exponential(load(values + i) - shift);
    store(out + i, e);
    total += e;
  }
  float sum = sum_lanes(total);
  if (i < count) {
    float rest[lanes];
    std::fill(rest, rest + lanes, lowest);
    std::copy(values + i, values + count, rest);
    store(rest, exponential(load(rest) - shift));
    for (int lane = 0; i < count; ++i, ++lane) {
      out[i] = rest[lane];
      sum += rest[lane];
    }
  }
  return sum;
}

H2O_TARGET void add_scaled(const float* values, float factor, int count, float* sum) {
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    store(sum + i, load(sum + i) + load(values + i) * factor);
  }
  for (; i < count; ++i) {
    sum[i] += values[i] * factor;
  }
}

H2O_TARGET void add_scaled_abs(const float* values, float factor, int count, float* sum) {
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    Vector v = load(values + i);
    v = v < Vector{} ? -v : v;
    v = v >= splat(-lowest) ? Vector{} : v;
    store(sum + i, load(sum + i) + v * factor);
  }
  for (; i < count; ++i) {
    float v = std::fabs(values[i]);
    sum[i] += v >= -lowest ? 0.0f : v * factor;
  }
}

H2O_TARGET float importance(
    const Policy& policy,
    const HeadLedger& ledger,
    int count,
    int recent_from,
    float* out) {
  const float* scores = ledger.scores;
  const float novelty_weight = policy.novelty;
  float most = novelty_weight == 0.0f ? 0.0f : largest(scores, count);
  const Vector divisor = splat(most > 0.0f ? most : 1.0f);
  const Vector infinity = splat(std::numeric_limits<float>::infinity());
  Vector least = infinity;
  float rest = infinity[0];
  for (int i = 0; i < count; i += lanes) {
    int here = std::min(lanes, count - i);
    float score_tail[lanes] = {}, novelty_tail[lanes] = {};
    int32_t position_tail[lanes] = {};
    uint8_t held_tail[lanes] = {};
    const float* score_at = scores + i;
    const float* novelty_at = ledger.novelty + i;
    const int32_t* position_at = ledger.positions + i;
    const uint8_t* held_at = ledger.held ? ledger.held + i : nullptr;
    if (here < lanes) {
      std::copy(score_at, score_at + here, score_tail);
      std::copy(novelty_at, novelty_at + here, novelty_tail);
      std::copy(position_at, position_at + here, position_tail);
      score_at = score_tail;
      novelty_at = novelty_tail;
      position_at = position_tail;
      if (held_at) {
        std::copy(held_at, held_at + here, held_tail);
        held_at = held_tail;
      }
    }
    Vector value = load(score_at);
    if (novelty_weight != 0.0f) {
      value = value > Vector{} && most > 0.0f ? value / divisor : Vector{};
      value += load(novelty_at) * novelty_weight;
    }
    IntVector position = load(position_at);
    IntVector stays = (position < policy.sink_size) | (position >= recent_from);
    for (const auto& [begin, end] : policy.pinned) {
      stays |= (position >= begin) & (position < end);
    }
    if (held_at) {
      stays |= not_zero(held_at);
    }
    value = stays ? infinity : value;
    if (here == lanes) {
      store(out + i, value);
      least = value < least ? value : least;
    } else {
      float tail[lanes];
      store(tail, value);
      std::copy(tail, tail + here, out + i);
      rest = *std::min_element(tail, tail + here);
    }
  }
  for (int lane = 0; lane < lanes; ++lane) {
    rest = std::min(rest, least[lane]);
  }
  return rest;
}
