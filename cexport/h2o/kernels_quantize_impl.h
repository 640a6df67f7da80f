// Narrowing and quantizing; part of kernels_impl.h, in its namespace and with its macros.

template <class T>
H2O_TARGET void from_float32_of(const float* values, int count, T* out) {
  for (int i = 0; i < count; i += lanes) {
    store(out + i, load(values + i, count - i), count - i);
  }
}

H2O_TARGET void from_float32(const float* values, int count, Element element, void* out) {
  with_type(element, [&](auto type) __attribute__((always_inline)) {
    from_float32_of(values, count, static_cast<decltype(type)*>(out));
  });
}

/// One group by MLX's affine rule (its CPU backend's: halves round to even), operation
/// by operation, so that the bits agree; NaN packs as 0.
H2O_INLINE void quantize_group(
    const float* values,
    int group_size,
    int bits,
    int32_t* packed,
    float& scale,
    float& bias) {
  const float bins = float((1 << bits) - 1);
  Vector least = load(values), most = least;
  for (int d = lanes; d < group_size; d += lanes) {
    Vector v = load(values + d);
    least = v < least ? v : least;
    most = v > most ? v : most;
  }
  const float low = -largest_lane(-least), high = largest_lane(most);
  const bool from_low = std::fabs(low) > std::fabs(high);
  const float edge = from_low ? low : high;
  scale = std::max((high - low) / bins, 1e-7f);
  scale = from_low ? scale : -scale;
  const float steps = std::rint(edge / scale);
  bias = 0.0f;
  if (steps != 0.0f) {
    scale = edge / steps;
    bias = edge;
  }
  const Vector rounder = splat(12582912.0f); // 1.5 * 2^23: adding it rounds to an integer
  const Vector top = splat(bins);
  for (int d = 0; d < group_size; d += lanes) {
    Vector q = (load(values + d) - splat(bias)) / splat(scale);
    q = q > Vector{} ? q : Vector{};
    q = q < top ? q : top;
    q = (q + rounder) - rounder;
    IntVector whole = __builtin_convertvector(q, IntVector);
    std::memcpy(packed + d, &whole, sizeof(whole));
  }
}

H2O_TARGET void quantize_vector(
    const float* values,
    int dim,
    int bits,
    int group_size,
    uint8_t* words,
    float* scales,
    float* biases) {
  std::vector<int32_t> packed(group_size);
  for (int group = 0; group * group_size < dim; ++group) {
    quantize_group(
        values + group * group_size, group_size, bits, packed.data(), scales[group],
        biases[group]);
    uint8_t* to = words + size_t(group) * group_size * bits / 8;
    if (bits == 8) {
      for (int d = 0; d < group_size; ++d) {
        to[d] = uint8_t(packed[d]);
      }
    } else {
      for (int d = 0; d < group_size; d += 2) {
        to[d / 2] = uint8_t(packed[d] | packed[d + 1] << 4);
      }
    }
  }
}
