// The kernels over quantized vectors; part of kernels_impl.h, in its namespace and with
// its macros. A vector is scale * q + bias for each group of elements, so
//   query . vector = sum over groups of scale * (query . q) + bias * (sum of query)
// and the integers are widened in registers, once for all heads of a block.

typedef uint8_t Bytes __attribute__((vector_size(H2O_LANES)));
typedef uint8_t HalfBytes __attribute__((vector_size(H2O_LANES / 2)));
typedef uint16_t BytePairs __attribute__((vector_size(H2O_LANES)));

/// Doubles the width in each step, because processors have instructions for that, but not for
/// widening bytes to words at once.
H2O_INLINE Vector widen_bytes(Bytes bytes) {
  HalfWords wide = __builtin_convertvector(bytes, HalfWords);
  return __builtin_convertvector(__builtin_convertvector(wide, IntVector), Vector);
}

/// `lanes` packed integers of `Bits` bits from element `first` of `words` on.
template <int Bits>
H2O_INLINE Vector load_packed(const uint8_t* words, int first) {
  Bytes bytes;
  if constexpr (Bits == 8) {
    std::memcpy(&bytes, words + first, sizeof(bytes));
  } else {
    HalfBytes packed;
    std::memcpy(&packed, words + first / 2, sizeof(packed));
    BytePairs pairs = __builtin_convertvector(packed, BytePairs);
    bytes = __builtin_bit_cast(Bytes, (pairs | (pairs << 4)) & 0x0f0f);
  }
  return H2O_WIDEN_BYTES(bytes);
}

/// Scale and bias of every group of up to `tile_rows` rows, rows innermost.
constexpr int tile_rows = 64;

struct GroupScales {
  std::vector<float> scales;
  std::vector<float> biases;
};

template <class S>
H2O_TARGET void load_scales_of(
    const void* from, int64_t stride, int row_count, int groups, float* out) {
  for (int n = 0; n < row_count; ++n) {
    auto row = static_cast<const uint8_t*>(from) + n * stride;
    for (int group = 0; group < groups; ++group) {
      S value;
      std::memcpy(&value, row + group * sizeof(S), sizeof(S));
      out[group * tile_rows + n] = scalar_to_float(value);
    }
  }
}

H2O_TARGET void load_scales(
    const void* from,
    Element element,
    int64_t stride,
    int row_count,
    int groups,
    float* out) {
  with_type(element, [&](auto type) __attribute__((always_inline)) {
    load_scales_of<decltype(type)>(from, stride, row_count, groups, out);
  });
}

/// The scales and biases of rows first_row, ... of a tile.
H2O_TARGET void load_tile_scales(
    const Packing& packing, int first_row, int row_count, int groups, GroupScales& tile) {
  auto at = [first_row](const void* from, int64_t stride) {
    return static_cast<const uint8_t*>(from) + first_row * stride;
  };
  load_scales(
      at(packing.scales, packing.scale_stride), packing.element, packing.scale_stride,
      row_count, groups, tile.scales.data());
  load_scales(
      at(packing.biases, packing.bias_stride), packing.element, packing.bias_stride,
      row_count, groups, tile.biases.data());
}

GroupScales make_tile(int groups) {
  return {std::vector<float>(groups * tile_rows), std::vector<float>(groups * tile_rows)};
}

/// out[h * out_stride + r] = sum over groups of scale * (query . q).
template <int Bits, int Rows, int Heads>
H2O_INLINE void dot_packed_block(
    const float* queries,
    const uint8_t* words,
    int64_t stride,
    const float* scales,
    int group_size,
    int dim,
    float* out,
    int64_t out_stride) {
  Vector sum[Heads][Rows] = {};
  for (int group = 0; group * group_size < dim; ++group) {
    Vector factor[Rows];
    for (int r = 0; r < Rows; ++r) {
      factor[r] = splat(scales[group * tile_rows + r]);
    }
    for (int d = group * group_size; d < (group + 1) * group_size; d += lanes) {
      Vector query[Heads];
      for (int h = 0; h < Heads; ++h) {
        query[h] = load(queries + h * int64_t(dim) + d);
      }
      for (int r = 0; r < Rows; ++r) {
        Vector key = load_packed<Bits>(words + r * stride, d) * factor[r];
        for (int h = 0; h < Heads; ++h) {
          sum[h][r] += query[h] * key;
        }
      }
    }
  }
  store_sums<Rows, Heads>(&sum[0][0], out, out_stride);
}

template <int Bits, int Heads>
H2O_TARGET void dot_packed_heads(
    const float* queries,
    const uint8_t* words,
    int64_t stride,
    const GroupScales& tile,
    int row_count,
    int group_size,
    int dim,
    float* out,
    int64_t out_stride) {
  int n = 0;
  for (; n + H2O_BLOCK <= row_count; n += H2O_BLOCK) {
    for (int r = 0; r < H2O_BLOCK; ++r) {
      prefetch(words + (n + rows_ahead + r) * stride, dim * Bits / 8);
    }
    dot_packed_block<Bits, H2O_BLOCK, Heads>(
        queries, words + n * stride, stride, tile.scales.data() + n, group_size, dim,
        out + n, out_stride);
  }
  for (; n < row_count; ++n) {
    dot_packed_block<Bits, 1, Heads>(
        queries, words + n * stride, stride, tile.scales.data() + n, group_size, dim,
        out + n, out_stride);
  }
  for (int h = 0; h < Heads; ++h) {
    for (int group = 0; group * group_size < dim; ++group) {
      Vector total = {};
      const float* query = queries + h * int64_t(dim) + group * group_size;
      for (int d = 0; d < group_size; d += lanes) {
        total += load(query + d);
      }
      const float query_sum = sum_lanes(total);
      const float* biases = tile.biases.data() + group * tile_rows;
      for (int row = 0; row < row_count; ++row) {
        out[h * out_stride + row] += query_sum * biases[row];
      }
    }
  }
}

template <int Bits>
H2O_TARGET void dot_packed_of(
    const float* queries,
    int heads,
    RowsView rows,
    int row_count,
    int dim,
    float* out,
    int64_t out_stride) {
  const int group_size = rows.packing.group_size;
  GroupScales tile = make_tile(dim / group_size);
  for (int first = 0; first < row_count; first += tile_rows) {
    const int count = std::min(tile_rows, row_count - first);
    load_tile_scales(rows.packing, first, count, dim / group_size, tile);
    auto words = static_cast<const uint8_t*>(rows.data) + first * rows.stride;
    for_head_blocks(heads, [&](int h, auto block) __attribute__((always_inline)) {
      dot_packed_heads<Bits, decltype(block)::value>(
          queries + h * int64_t(dim), words, rows.stride, tile, count, group_size, dim,
          out + h * out_stride + first, out_stride);
    });
  }
}

H2O_TARGET void dot_packed_rows(
    const float* queries,
    int heads,
    RowsView rows,
    int row_count,
    int dim,
    float* out,
    int64_t out_stride) {
  if (rows.packing.bits == 8) {
    return dot_packed_of<8>(queries, heads, rows, row_count, dim, out, out_stride);
  }
  dot_packed_of<4>(queries, heads, rows, row_count, dim, out, out_stride);
}

/// out[h][d...] += sum over rows of weight * scale * q, for `Vectors` vectors from `d` on.
template <int Bits, int Heads, int Vectors>
H2O_INLINE void mix_packed_block(
    const float* weights,
    int64_t weight_stride,
    const uint8_t* words,
    int64_t stride,
    const float* scales,
    int row_count,
    int d,
    int group_size,
    float* out,
    int64_t out_stride) {
  Vector sum[Heads][Vectors];
  for (int h = 0; h < Heads; ++h) {
    for (int i = 0; i < Vectors; ++i) {
      sum[h][i] = load(out + h * out_stride + d + i * lanes);
    }
  }
  const float* scale[Vectors];
  for (int i = 0; i < Vectors; ++i) {
    scale[i] = scales + (d + i * lanes) / group_size * tile_rows;
  }
  for (int n = 0; n < row_count; ++n) {
    prefetch(words + (n + rows_ahead) * stride + d * Bits / 8, Vectors * lanes * Bits / 8);
    Vector value[Vectors];
    for (int i = 0; i < Vectors; ++i) {
      value[i] = load_packed<Bits>(words + n * stride, d + i * lanes) * splat(scale[i][n]);
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
      store(out + h * out_stride + d + i * lanes, sum[h][i]);
    }
  }
}

template <int Bits, int Heads>
H2O_TARGET void mix_packed_heads(
    const float* weights,
    int64_t weight_stride,
    const uint8_t* words,
    int64_t stride,
    const GroupScales& tile,
    int row_count,
    int group_size,
    int dim,
    float* out) {
  constexpr int block = H2O_BLOCK * lanes;
  int d = 0;
  for (; d + block <= dim; d += block) {
    mix_packed_block<Bits, Heads, H2O_BLOCK>(
        weights, weight_stride, words, stride, tile.scales.data(), row_count, d, group_size,
        out, dim);
  }
  for (; d < dim; d += lanes) {
    mix_packed_block<Bits, Heads, 1>(
        weights, weight_stride, words, stride, tile.scales.data(), row_count, d, group_size,
        out, dim);
  }
  for (int h = 0; h < Heads; ++h) {
    for (int group = 0; group * group_size < dim; ++group) {
      const float* biases = tile.biases.data() + group * tile_rows;
      float total = 0.0f;
      for (int n = 0; n < row_count; ++n) {
        total += weights[h * weight_stride + n] * biases[n];
      }
      float* to = out + h * int64_t(dim) + group * group_size;
      for (int i = 0; i < group_size; i += lanes) {
        store(to + i, load(to + i) + splat(total));
      }
    }
  }
}

template <int Bits>
H2O_TARGET void mix_packed_of(
    const float* weights,
    int heads,
    int64_t weight_stride,
    RowsView rows,
    int row_count,
    int dim,
    float* out) {
  const int group_size = rows.packing.group_size;
  GroupScales tile = make_tile(dim / group_size);
  for (int first = 0; first < row_count; first += tile_rows) {
    const int count = std::min(tile_rows, row_count - first);
    load_tile_scales(rows.packing, first, count, dim / group_size, tile);
    auto words = static_cast<const uint8_t*>(rows.data) + first * rows.stride;
    for_head_blocks(heads, [&](int h, auto block) __attribute__((always_inline)) {
      mix_packed_heads<Bits, decltype(block)::value>(
          weights + h * weight_stride + first, weight_stride, words, rows.stride, tile,
          count, group_size, dim, out + h * int64_t(dim));
    });
  }
}

H2O_TARGET void mix_packed_rows(
    const float* weights,
    int heads,
    int64_t weight_stride,
    RowsView rows,
    int row_count,
    int dim,
    bool accumulate,
    float* out) {
  if (!accumulate) {
    std::fill(out, out + int64_t(heads) * dim, 0.0f);
  }
  if (rows.packing.bits == 8) {
    return mix_packed_of<8>(weights, heads, weight_stride, rows, row_count, dim, out);
  }
  mix_packed_of<4>(weights, heads, weight_stride, rows, row_count, dim, out);
}

template <int Bits, class S>
H2O_TARGET void unpack_rows_of(
    RowsView rows, int row_count, int dim, float* out, int64_t out_stride) {
  const Packing& packing = rows.packing;
  for (int n = 0; n < row_count; ++n) {
    auto words = static_cast<const uint8_t*>(rows.data) + n * rows.stride;
    auto scales = static_cast<const uint8_t*>(packing.scales) + n * packing.scale_stride;
    auto biases = static_cast<const uint8_t*>(packing.biases) + n * packing.bias_stride;
    float* to = out + n * out_stride;
    for (int group = 0; group * packing.group_size < dim; ++group) {
      S scale, bias;
      std::memcpy(&scale, scales + group * sizeof(S), sizeof(S));
      std::memcpy(&bias, biases + group * sizeof(S), sizeof(S));
      const Vector factor = splat(scalar_to_float(scale)),
                   offset = splat(scalar_to_float(bias));
      const int end = (group + 1) * packing.group_size;
      for (int d = group * packing.group_size; d < end; d += lanes) {
        Vector product = load_packed<Bits>(words, d) * factor;
        // Keeps the compiler from fusing product and sum, because mx.dequantize rounds the
        // product.
        __asm__("" : "+" H2O_REGISTER(product));
        store(to + d, product + offset);
      }
    }
  }
}

H2O_TARGET void unpack_rows(
    RowsView rows, int row_count, int dim, float* out, int64_t out_stride) {
  with_type(rows.packing.element, [&](auto type) __attribute__((always_inline)) {
    if (rows.packing.bits == 8) {
      unpack_rows_of<8, decltype(type)>(rows, row_count, dim, out, out_stride);
    } else {
      unpack_rows_of<4, decltype(type)>(rows, row_count, dim, out, out_stride);
    }
  });
}
