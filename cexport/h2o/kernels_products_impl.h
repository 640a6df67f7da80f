// Products of queries with rows, and weighted sums of rows; part of kernels_impl.h, in its
// namespace and with its macros. `Rows` is DenseRows or PackedRows. A quantized vector is
// scale * q + bias for each group of elements, so
//   query . vector = sum over groups of scale * (query . q) + bias * (sum of query)
// and the integers are widened in registers, once for all heads of a block.

/// out[h * out_stride + r] = query . row, for `Count` rows from `first` on.
template <int Count, int Heads, class Rows>
H2O_INLINE void dot_block(
    const float* queries, Rows rows, int first, int dim, float* out, int64_t out_stride) {
  Vector sum[Heads][Count] = {};
  constexpr int parts = Rows::vectors_per_load;
  int d = 0;
  for (int group = 0, begin = 0; begin < dim; ++group, begin += rows.group_size) {
    Vector scale[Count];
    if constexpr (Rows::is_packed) {
      for (int r = 0; r < Count; ++r) {
        scale[r] = splat(rows.scales[group * tile_rows + first + r]);
      }
    }
    const int end = std::min(begin + rows.group_size, dim);
    for (d = begin; d + parts * lanes <= end; d += parts * lanes) {
      Vector query[parts][Heads];
      for (int p = 0; p < parts; ++p) {
        for (int h = 0; h < Heads; ++h) {
          query[p][h] = load(queries + h * int64_t(dim) + d + p * lanes);
        }
      }
      for (int r = 0; r < Count; ++r) {
        Vector key[parts];
        rows.load(first + r, d, key);
        if constexpr (Rows::is_packed) {
          key[0] *= scale[r];
        }
        for (int p = 0; p < parts; ++p) {
          for (int h = 0; h < Heads; ++h) {
            sum[h][r] += query[p][h] * key[p];
          }
        }
      }
    }
  }
  store_sums<Count, Heads>(&sum[0][0], out, out_stride);
  if constexpr (!Rows::is_packed) {
    for (; d < dim; ++d) {
      for (int h = 0; h < Heads; ++h) {
        for (int r = 0; r < Count; ++r) {
          out[h * out_stride + r] += queries[h * int64_t(dim) + d] * rows.at(first + r, d);
        }
      }
    }
  }
}

template <int Heads, class Rows>
H2O_TARGET void dot_heads(
    const float* queries,
    Rows rows,
    int row_count,
    int dim,
    float* out,
    int64_t out_stride) {
  int n = 0;
  for (; n + H2O_BLOCK <= row_count; n += H2O_BLOCK) {
    for (int r = 0; r < H2O_BLOCK; ++r) {
      rows.prefetch(n + rows_ahead + r, 0, dim);
    }
    dot_block<H2O_BLOCK, Heads>(queries, rows, n, dim, out + n, out_stride);
  }
  for (; n < row_count; ++n) {
    dot_block<1, Heads>(queries, rows, n, dim, out + n, out_stride);
  }
}

template <class Rows>
H2O_TARGET void dot_rows_of(
    const float* queries,
    int heads,
    Rows rows,
    int row_count,
    int dim,
    float* out,
    int64_t out_stride) {
  for_head_blocks(heads, [&](int h, auto block) __attribute__((always_inline)) {
    dot_heads<decltype(block)::value>(
        queries + h * int64_t(dim), rows, row_count, dim, out + h * out_stride, out_stride);
  });
}

/// Adds the products of the queries with the biases of a tile.
H2O_TARGET void dot_biases(
    const float* queries,
    int heads,
    const float* biases,
    int group_size,
    int row_count,
    int dim,
    float* out,
    int64_t out_stride) {
  for (int h = 0; h < heads; ++h) {
    for (int group = 0; group * group_size < dim; ++group) {
      Vector total = {};
      const float* query = queries + h * int64_t(dim) + group * group_size;
      for (int d = 0; d < group_size; d += lanes) {
        total += load(query + d);
      }
      const float query_sum = sum_lanes(total);
      for (int n = 0; n < row_count; ++n) {
        out[h * out_stride + n] += query_sum * biases[group * tile_rows + n];
      }
    }
  }
}

/// out[h * dim + d...] += sum over rows of weight * row, for `Vectors` vectors from `d` on.
template <int Heads, int Vectors, class Rows>
H2O_INLINE void mix_block(
    const float* weights,
    int64_t weight_stride,
    Rows rows,
    int row_count,
    int d,
    int dim,
    float* out) {
  Vector sum[Heads][Vectors];
  for (int h = 0; h < Heads; ++h) {
    for (int i = 0; i < Vectors; ++i) {
      sum[h][i] = load(out + h * int64_t(dim) + d + i * lanes);
    }
  }
  const float* scales[Vectors];
  if constexpr (Rows::is_packed) {
    for (int i = 0; i < Vectors; ++i) {
      scales[i] = rows.scales + (d + i * lanes) / rows.group_size * tile_rows;
    }
  }
  for (int n = 0; n < row_count; ++n) {
    rows.prefetch(n + rows_ahead, d, Vectors * lanes);
    Vector value[Vectors];
    for (int i = 0; i < Vectors; i += Rows::vectors_per_load) {
      rows.load(n, d + i * lanes, value + i);
      if constexpr (Rows::is_packed) {
        value[i] *= splat(scales[i][n]);
      }
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
      store(out + h * int64_t(dim) + d + i * lanes, sum[h][i]);
    }
  }
}

template <int Heads, class Rows>
H2O_TARGET void mix_heads(
    const float* weights,
    int64_t weight_stride,
    Rows rows,
    int row_count,
    int dim,
    float* out) {
  constexpr int block = H2O_BLOCK * lanes, least = Rows::vectors_per_load * lanes;
  int d = 0;
  for (; d + block <= dim; d += block) {
    mix_block<Heads, H2O_BLOCK>(weights, weight_stride, rows, row_count, d, dim, out);
  }
  for (; d + least <= dim; d += least) {
    mix_block<Heads, Rows::vectors_per_load>(
        weights, weight_stride, rows, row_count, d, dim, out);
  }
  if constexpr (!Rows::is_packed) {
    for (; d < dim; ++d) {
      for (int h = 0; h < Heads; ++h) {
        float total = out[h * int64_t(dim) + d];
        for (int n = 0; n < row_count; ++n) {
          total += weights[h * weight_stride + n] * rows.at(n, d);
        }
        out[h * int64_t(dim) + d] = total;
      }
    }
  }
}

template <class Rows>
H2O_TARGET void mix_rows_of(
    const float* weights,
    int heads,
    int64_t weight_stride,
    Rows rows,
    int row_count,
    int dim,
    float* out) {
  for_head_blocks(heads, [&](int h, auto block) __attribute__((always_inline)) {
    mix_heads<decltype(block)::value>(
        weights + h * weight_stride, weight_stride, rows, row_count, dim,
        out + h * int64_t(dim));
  });
}

/// Adds the weighted sums of a tile's biases.
H2O_TARGET void mix_biases(
    const float* weights,
    int heads,
    int64_t weight_stride,
    const float* biases,
    int group_size,
    int row_count,
    int dim,
    float* out) {
  for (int h = 0; h < heads; ++h) {
    for (int group = 0; group * group_size < dim; ++group) {
      float total = 0.0f;
      for (int n = 0; n < row_count; ++n) {
        total += weights[h * weight_stride + n] * biases[group * tile_rows + n];
      }
      float* to = out + h * int64_t(dim) + group * group_size;
      for (int i = 0; i < group_size; i += lanes) {
        store(to + i, load(to + i) + splat(total));
      }
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

/// Calls run(rows, biases, first row, rows): once for rows that are not quantized, and once per
/// tile for quantized rows. Rows of bfloat16 are paired if their length allows it.
template <class Run>
H2O_TARGET void for_rows(RowsView view, int row_count, int dim, Run run) {
  if (view.packing.bits == 8) {
    return for_tiles<8>(view, row_count, dim, run);
  }
  if (view.packing.bits == 4) {
    return for_tiles<4>(view, row_count, dim, run);
  }
  with_type(view.element, [&](auto type) __attribute__((always_inline)) {
    using T = decltype(type);
    const int64_t stride = view.stride / int64_t(sizeof(T));
    const auto* data = static_cast<const T*>(view.data);
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (dim % (2 * lanes) == 0) {
        const auto* pairs = reinterpret_cast<const PairedBFloat16*>(data);
        return run(DenseRows<PairedBFloat16>{pairs, stride}, nullptr, 0, row_count);
      }
    }
    run(DenseRows<T>{data, stride}, nullptr, 0, row_count);
  });
}

H2O_TARGET void dot_rows(
    const float* queries,
    int heads,
    RowsView view,
    int row_count,
    int dim,
    float* out,
    int64_t out_stride) {
  auto run = [&](auto rows, const float* biases, int first,
                 int count) __attribute__((always_inline)) {
    using Rows = decltype(rows);
    if constexpr (Rows::is_paired) {
      std::vector<float> split(size_t(heads) * dim);
      split_pairs(queries, heads * dim, split.data());
      dot_rows_of(split.data(), heads, rows, count, dim, out, out_stride);
    } else {
      dot_rows_of(queries, heads, rows, count, dim, out + first, out_stride);
    }
    if constexpr (Rows::is_packed) {
      dot_biases(
          queries, heads, biases, rows.group_size, count, dim, out + first, out_stride);
    }
  };
  for_rows(view, row_count, dim, run);
}

/// Integers of 2 bits in a word.
constexpr int word_codes = 16;
/// Vectors with a lane for each row, whose sums are accumulated at once.
constexpr int row_vectors = 2;

/// For rows of 2 bits: most[v] becomes the larger of itself and the finite products with the
/// heads. words, scales and biases have rows innermost, tile_rows of them. An integer stays
/// where it is in its word, which multiplies it by a power of 4; `queries` [dim, Heads] are
/// divided by that power.
template <int Heads>
H2O_TARGET void dot_codes(
    const float* queries,
    const float* query_sums, // [groups, Heads]
    const uint32_t* words,
    const float* scales,
    const float* biases,
    int groups,
    int group_words,
    Vector* most) {
  Vector total[Heads][row_vectors] = {};
  for (int group = 0; group < groups; ++group) {
    Vector sum[Heads][row_vectors] = {};
    for (int w = group * group_words; w < (group + 1) * group_words; ++w) {
      WordVector word[row_vectors];
      std::memcpy(word, words + w * tile_rows, sizeof(word));
      const float* query = queries + w * word_codes * Heads;
#pragma GCC unroll 16
      for (int i = 0; i < word_codes; ++i) {
        Vector code[row_vectors];
        for (int v = 0; v < row_vectors; ++v) {
          // The last integer would be negative where it is.
          const WordVector bits =
              i + 1 < word_codes ? word[v] & (3u << 2 * i) : word[v] >> 2 * i;
          code[v] = __builtin_convertvector(__builtin_bit_cast(IntVector, bits), Vector);
        }
        for (int h = 0; h < Heads; ++h) {
          const Vector element = splat(query[i * Heads + h]);
          for (int v = 0; v < row_vectors; ++v) {
            sum[h][v] += element * code[v];
          }
        }
      }
    }
    for (int v = 0; v < row_vectors; ++v) {
      const int first = group * tile_rows + v * lanes;
      const Vector scale = load(scales + first), bias = load(biases + first);
      for (int h = 0; h < Heads; ++h) {
        total[h][v] += sum[h][v] * scale + splat(query_sums[group * Heads + h]) * bias;
      }
    }
  }
  for (int h = 0; h < Heads; ++h) {
    for (int v = 0; v < row_vectors; ++v) {
      const Vector dot = total[h][v];
      most[v] = ((dot > most[v]) & (dot < infinity)) ? dot : most[v];
    }
  }
}

/// One tile: the blocks of `placed` [dim, Heads] and `sums` [groups, Heads] are those of
/// for_head_blocks. turned: space for the words of the tile.
H2O_TARGET void largest_dots_of_tile(
    const std::vector<float>& placed,
    const std::vector<float>& sums,
    int heads,
    const PackedRows<2>& rows,
    const float* biases,
    int row_count,
    int dim,
    uint32_t* turned,
    float* out) {
  const int words = dim / word_codes, groups = dim / rows.group_size;
  for (int n = 0; n < row_count; ++n) {
    const uint8_t* row = rows.words + n * rows.stride;
    for (int w = 0; w < words; ++w) {
      std::memcpy(turned + w * tile_rows + n, row + w * 4, 4);
    }
  }
  for (int n = 0; n < row_count; n += row_vectors * lanes) {
    Vector most[row_vectors];
    for (Vector& vector : most) {
      vector = splat(-infinity);
    }
    for_head_blocks(heads, [&](int h, auto block) __attribute__((always_inline)) {
      dot_codes<decltype(block)::value>(
          placed.data() + h * dim, sums.data() + h * groups, turned + n, rows.scales + n,
          biases + n, groups, rows.group_size / word_codes, most);
    });
    for (int v = 0; v < row_vectors && n + v * lanes < row_count; ++v) {
      store(out + n + v * lanes, most[v], row_count - n - v * lanes);
    }
  }
}

H2O_TARGET void largest_dots_of_codes(
    const float* queries, int heads, RowsView view, int row_count, int dim, float* out) {
  const int group_size = view.packing.group_size, groups = dim / group_size;
  float places[word_codes];
  for (int i = 0; i < word_codes; ++i) {
    places[i] = i + 1 < word_codes ? 1.0f / float(1 << 2 * i) : 1.0f;
  }
  std::vector<float> placed(size_t(heads) * dim), sums(size_t(heads) * groups);
  for_head_blocks(heads, [&](int first, auto block) __attribute__((always_inline)) {
    constexpr int size = decltype(block)::value;
    for (int h = 0; h < size; ++h) {
      const float* query = queries + (first + h) * int64_t(dim);
      for (int d = 0; d < dim; ++d) {
        placed[first * dim + d * size + h] = query[d] * places[d % word_codes];
        sums[first * groups + d / group_size * size + h] += query[d];
      }
    }
  });
  std::vector<uint32_t> turned(dim / word_codes * tile_rows);
  for_tiles<2>(
      view, row_count, dim,
      [&](auto rows, const float* biases, int first, int count)
          __attribute__((always_inline)) {
            largest_dots_of_tile(
                placed, sums, heads, rows, biases, count, dim, turned.data(), out + first);
          });
}

H2O_TARGET void largest_dots(
    const float* queries, int heads, RowsView view, int row_count, int dim, float* out) {
  if (view.packing.bits == 2) {
    return largest_dots_of_codes(queries, heads, view, row_count, dim, out);
  }
  std::vector<float> dots(size_t(heads) * row_count);
  dot_rows(queries, heads, view, row_count, dim, dots.data(), row_count);
  std::fill(out, out + row_count, -infinity);
  for (int h = 0; h < heads; ++h) {
    for (int n = 0; n < row_count; ++n) {
      const float dot = dots[size_t(h) * row_count + n];
      out[n] = dot > out[n] && dot < infinity ? dot : out[n];
    }
  }
}

H2O_TARGET void mix_rows(
    const float* weights,
    int heads,
    int64_t weight_stride,
    RowsView view,
    int row_count,
    int dim,
    bool accumulate,
    float* out) {
  if (!accumulate) {
    std::fill(out, out + int64_t(heads) * dim, 0.0f);
  }
  for_rows(
      view, row_count, dim,
      [&](auto rows, const float* biases, int first, int count)
          __attribute__((always_inline)) {
            using Rows = decltype(rows);
            if constexpr (Rows::is_paired) {
              std::vector<float> split(size_t(heads) * dim);
              split_pairs(out, heads * dim, split.data());
              mix_rows_of(weights, heads, weight_stride, rows, count, dim, split.data());
              for (int d = 0; d < heads * dim; d += 2 * lanes) {
                for (int i = 0; i < lanes; ++i) {
                  out[d + 2 * i] = split[d + i];
                  out[d + 2 * i + 1] = split[d + lanes + i];
                }
              }
            } else {
              mix_rows_of(weights + first, heads, weight_stride, rows, count, dim, out);
            }
            if constexpr (Rows::is_packed) {
              mix_biases(
                  weights + first, heads, weight_stride, biases, rows.group_size, count,
                  dim, out);
            }
          });
}
