#pragma once

#include <functional>
#include <vector>

#include "functions.h"
#include "kernels.h"

/// Attention of one KV head of one sequence: what both primitives evaluate.
namespace h2o::cpu {

Element element_of(mx::Dtype dtype);

/// Rows [n] of a [B, Hkv, N, D] array for one sequence and head, copied to
/// `storage` only where the last dimension is not contiguous.
RowsView rows_of(const mx::array& a, int batch, int head, std::vector<float>& storage);

/// Row `n` on its own.
RowsView row_at(RowsView rows, int n);

/// One query vector times `scale`, in float32.
void load_query(
    const mx::array& queries, int batch, int head, int query, float scale, float* out);

/// The logit without a value of a query head.
float load_sink(const mx::array& sinks, int head);

/// Copies a[batch, head, row, :] to `to`, whatever its strides.
void copy_vector(const mx::array& a, int batch, int head, int row, char* to);

/// A mask array seen as [B, Hq, L, N], whatever it is broadcast from.
class MaskView {
 public:
  MaskView() = default;
  MaskView(const mx::array& mask, const mx::Shape& full_shape);

  explicit operator bool() const {
    return data_ != nullptr;
  }

  /// Applies the mask to `logits` of one query. A hidden row's logit becomes the
  /// lowest finite float: where a bool mask is false and where the sum is not
  /// above it; with `low_bias_hides` also where an additive mask is so low (at most
  /// -1e9, float16 half its lowest) that it means to hide.
  void apply(
      int batch, int head, int query, int count, bool low_bias_hides, float* logits) const;

 private:
  const void* data_ = nullptr;
  bool boolean_ = false;
  Element element_ = Element::float32;
  float hiding_bias_ = 0.0f;
  int64_t strides_[4] = {0, 0, 0, 0};
};

/// The numbers of one attention call, equal for all heads.
struct AttentionShape {
  int group;   // query heads of a KV head
  int queries; // L
  int rows;    // N
  int key_dim;
  int value_dim;
  float scale;
  bool causal; // query l sees the first N - L + l + 1 rows
};

/// Rows of one head that lie together; a cache has one part, or a pool and a ring.
struct RowsPart {
  RowsView keys;
  RowsView values;
  int rows;
};

/// One query of all heads of a group, as just computed; arrays are [group, stride].
struct QueryResult {
  int query;
  int rows;                 // rows that causality lets it see
  const float* logits;      // lowest finite float: hidden
  const float* weights;     // exp(logit - largest)
  const float* normalizers; // [group]: weights times this are probabilities
  int64_t stride;
};

/// Buffers of one evaluation, kept from head to head.
struct Workspace {
  std::vector<float> query, logits, weights, weighted_sums, normalizers;
  std::vector<std::vector<float>> wide;
};

/// Computes out[b, h * group + g, l, :] for all g and l over the parts' rows, `shape.rows`
/// together, calling `observe` for each query in order.
void attend_head(
    const AttentionShape& shape,
    const mx::array& queries,
    std::vector<RowsPart> parts,
    const MaskView& mask,
    bool low_bias_hides,
    const mx::array* sinks,
    int batch,
    int head,
    mx::array& out,
    Workspace& workspace,
    const std::function<void(const QueryResult&)>& observe);

} // namespace h2o::cpu
