// The kernels over vectors that are not quantized; part of kernels_impl.h, in its
// namespace and with its macros.

/// Number of vectors that one load returns. Loading pairs of bfloat16 returns one vector of
/// the even elements and one of the odd elements. Each takes one operation; widening single
/// elements takes two.
template <class T>
constexpr int vectors_per_load = 1;

template <>
constexpr int vectors_per_load<PairedBFloat16> = 2;

template <class T>
H2O_INLINE void load_vectors(const T* from, Vector* to) {
  to[0] = load(from);
}

H2O_INLINE void load_vectors(const PairedBFloat16* from, Vector* to) {
  WordVector words;
  std::memcpy(&words, from, sizeof(words));
  to[0] = __builtin_bit_cast(Vector, words << 16);
  to[1] = __builtin_bit_cast(Vector, words & 0xffff0000u);
}

template <class T, int Rows, int Heads>
H2O_INLINE void dot_block(
    const float* queries,
    const T* rows,
    int64_t stride,
    int dim,
    float* out,
    int64_t out_stride) {
  Vector sum[Heads][Rows] = {};
  int d = 0;
  constexpr int parts = vectors_per_load<T>;
  for (; d + parts * lanes <= dim; d += parts * lanes) {
    Vector query[parts][Heads];
    for (int p = 0; p < parts; ++p) {
      for (int h = 0; h < Heads; ++h) {
        query[p][h] = load(queries + h * int64_t(dim) + d + p * lanes);
      }
    }
    for (int r = 0; r < Rows; ++r) {
      Vector key[parts];
      load_vectors(rows + r * stride + d, key);
      for (int p = 0; p < parts; ++p) {
        for (int h = 0; h < Heads; ++h) {
          sum[h][r] += query[p][h] * key[p];
        }
      }
    }
  }
  store_sums<Rows, Heads>(&sum[0][0], out, out_stride);
  for (; d < dim; ++d) {
    for (int h = 0; h < Heads; ++h) {
      for (int r = 0; r < Rows; ++r) {
        out[h * out_stride + r] +=
            queries[h * int64_t(dim) + d] * scalar_to_float(rows[r * stride + d]);
      }
    }
  }
}

template <class T, int Heads>
H2O_TARGET void dot_heads(
    const float* queries,
    const T* rows,
    int64_t stride,
    int row_count,
    int dim,
    float* out,
    int64_t out_stride) {
  int n = 0;
  for (; n + H2O_BLOCK <= row_count; n += H2O_BLOCK) {
    for (int r = 0; r < H2O_BLOCK; ++r) {
      prefetch(rows + (n + rows_ahead + r) * stride, dim * int64_t(sizeof(T)));
    }
    dot_block<T, H2O_BLOCK, Heads>(
        queries, rows + n * stride, stride, dim, out + n, out_stride);
  }
  for (; n < row_count; ++n) {
    dot_block<T, 1, Heads>(queries, rows + n * stride, stride, dim, out + n, out_stride);
  }
}

template <class T>
H2O_TARGET void dot_rows_of(
    const float* queries,
    int heads,
    const T* rows,
    int64_t stride,
    int row_count,
    int dim,
    float* out,
    int64_t out_stride) {
  for_head_blocks(heads, [&](int h, auto block) __attribute__((always_inline)) {
    dot_heads<T, decltype(block)::value>(
        queries + h * int64_t(dim), rows, stride, row_count, dim, out + h * out_stride,
        out_stride);
  });
}

template <class T, int Heads, int Vectors>
H2O_INLINE void mix_block(
    const float* weights,
    int64_t weight_stride,
    const T* rows,
    int64_t stride,
    int row_count,
    bool accumulate,
    float* out,
    int64_t out_stride) {
  Vector sum[Heads][Vectors] = {};
  if (accumulate) {
    for (int h = 0; h < Heads; ++h) {
      for (int i = 0; i < Vectors; ++i) {
        sum[h][i] = load(out + h * out_stride + i * lanes);
      }
    }
  }
  for (int n = 0; n < row_count; ++n) {
    prefetch(rows + (n + rows_ahead) * stride, Vectors * lanes * int64_t(sizeof(T)));
    Vector value[Vectors];
    for (int i = 0; i < Vectors; i += vectors_per_load<T>) {
      load_vectors(rows + n * stride + i * lanes, value + i);
    }
    for (int h = 0; h < Heads; ++h) {
      Vector weight = splat(weights[h * weight_stride + n]);
      for (int i = 0; i < Vectors; ++i) {
        sum[h][i] += weight * value[i];
      }
    }
  }
  for (int h = 0; h < Heads; ++h) {
    for (int i = 0; i < Vectors; ++i) {
      store(out + h * out_stride + i * lanes, sum[h][i]);
    }
  }
}

template <class T, int Heads>
H2O_TARGET void mix_heads(
    const float* weights,
    int64_t weight_stride,
    const T* rows,
    int64_t stride,
    int row_count,
    int dim,
    bool accumulate,
    float* out) {
  constexpr int block = H2O_BLOCK * lanes;
  int d = 0;
  for (; d + block <= dim; d += block) {
    mix_block<T, Heads, H2O_BLOCK>(
        weights, weight_stride, rows + d, stride, row_count, accumulate, out + d, dim);
  }
  constexpr int least = vectors_per_load<T>;
  for (; d + least * lanes <= dim; d += least * lanes) {
    mix_block<T, Heads, least>(
        weights, weight_stride, rows + d, stride, row_count, accumulate, out + d, dim);
  }
  for (; d < dim; ++d) {
    for (int h = 0; h < Heads; ++h) {
      float total = accumulate ? out[h * int64_t(dim) + d] : 0.0f;
      for (int n = 0; n < row_count; ++n) {
        total += weights[h * weight_stride + n] * scalar_to_float(rows[n * stride + d]);
      }
      out[h * int64_t(dim) + d] = total;
    }
  }
}

template <class T>
H2O_TARGET void mix_rows_of(
    const float* weights,
    int heads,
    int64_t weight_stride,
    const T* rows,
    int64_t stride,
    int row_count,
    int dim,
    bool accumulate,
    float* out) {
  for_head_blocks(heads, [&](int h, auto block) __attribute__((always_inline)) {
    mix_heads<T, decltype(block)::value>(
        weights + h * weight_stride, weight_stride, rows, stride, row_count, dim,
        accumulate, out + h * int64_t(dim));
  });
}

template <class T>
H2O_TARGET void to_float32_of(
    const T* rows, int64_t stride, int row_count, int dim, float* out, int64_t out_stride) {
  for (int n = 0; n < row_count; ++n) {
    for (int d = 0; d < dim; d += lanes) {
      store(out + n * out_stride + d, load(rows + n * stride + d, dim - d), dim - d);
    }
  }
}

/// Reorders each block of two vectors: first the even elements, then the odd ones, as loads
/// of pairs return them.
H2O_TARGET void split_pairs(const float* values, int count, float* out) {
  for (int d = 0; d < count; d += 2 * lanes) {
    for (int i = 0; i < lanes; ++i) {
      out[d + i] = values[d + 2 * i];
      out[d + lanes + i] = values[d + 2 * i + 1];
    }
  }
}

/// Loads pairs of elements if the length of a row allows it.
H2O_TARGET void dot_rows_of(
    const float* queries,
    int heads,
    const BFloat16* rows,
    int64_t stride,
    int row_count,
    int dim,
    float* out,
    int64_t out_stride) {
  if (dim % (2 * lanes) != 0) {
    return dot_rows_of<BFloat16>(
        queries, heads, rows, stride, row_count, dim, out, out_stride);
  }
  std::vector<float> split(size_t(heads) * dim);
  split_pairs(queries, heads * dim, split.data());
  dot_rows_of(
      split.data(), heads, reinterpret_cast<const PairedBFloat16*>(rows), stride, row_count,
      dim, out, out_stride);
}

H2O_TARGET void mix_rows_of(
    const float* weights,
    int heads,
    int64_t weight_stride,
    const BFloat16* rows,
    int64_t stride,
    int row_count,
    int dim,
    bool accumulate,
    float* out) {
  if (dim % (2 * lanes) != 0) {
    return mix_rows_of<BFloat16>(
        weights, heads, weight_stride, rows, stride, row_count, dim, accumulate, out);
  }
  std::vector<float> split(size_t(heads) * dim);
  if (accumulate) {
    split_pairs(out, heads * dim, split.data());
  }
  mix_rows_of(
      weights, heads, weight_stride, reinterpret_cast<const PairedBFloat16*>(rows), stride,
      row_count, dim, accumulate, split.data());
  for (int d = 0; d < heads * dim; d += 2 * lanes) {
    for (int i = 0; i < lanes; ++i) {
      out[d + 2 * i] = split[d + i];
      out[d + 2 * i + 1] = split[d + lanes + i];
    }
  }
}
