#pragma once

#include <functional>
#include <vector>

#include "functions.h"
#include "kernels.h"

/// Attention of one KV head of one sequence. Both attention primitives use it on the CPU.
namespace h2o::cpu {

Element element_of(mx::Dtype dtype);

/// Rows [n] of a [B, Hkv, N, D] array for one sequence and head, copied to
/// `storage` only where the last dimension is not contiguous.
RowsView rows_of(const mx::array& a, int batch, int head, std::vector<float>& storage);

/// One row.
RowsView row_at(RowsView rows, int n);

/// One query vector times `scale`, in float32.
void load_query(
    const mx::array& queries, int batch, int head, int query, float scale, float* out);

/// The sink of a query head: a logit without a value.
float load_sink(const mx::array& sinks, int head);

/// Copies a[batch, head, row, :] to `to`, whatever its strides.
void copy_vector(const mx::array& a, int batch, int head, int row, char* to);

/// A mask array, broadcast to [B, Hq, L, N].
class MaskView {
 public:
  MaskView() = default;
  MaskView(const mx::array& mask, const mx::Shape& full_shape);

  explicit operator bool() const {
    return data_ != nullptr;
  }

  /// Applies the mask to the `logits` of one query. The logit of a hidden row becomes the
  /// lowest finite float. A row is hidden if a bool mask is false, or if its logit plus
  /// the mask is not above that float. With `low_bias_hides`, a row is also hidden by an
  /// additive mask of at most -1e9 (in float16, half the lowest number).
  void apply(
      int batch, int head, int query, int count, bool low_bias_hides, float* logits) const;

 private:
  const void* data_ = nullptr;
  bool boolean_ = false;
  Element element_ = Element::float32;
  float hiding_bias_ = 0.0f;
  int64_t strides_[4] = {0, 0, 0, 0};
};

/// The sizes of one attention call, equal for all heads.
struct AttentionShape {
  int group;   // query heads of a KV head
  int queries; // L
  int rows;    // N
  int key_dim;
  int value_dim;
  float scale;
  bool causal; // query l sees the first N - L + l + 1 rows
};

/// Contiguous rows of one head: a cache has one part, or a pool and a ring.
struct RowsPart {
  RowsView keys;
  RowsView values;
  int rows;
};

/// What the last `a` queries read besides the rows: contiguous float32 arrays, the outputs
/// [B, Hq, a, Dv] and the logarithms of the sums of exp(logit) [B, Hq, a].
struct ElsewhereView {
  const mx::array& out;
  const mx::array& total;
};

/// The results for one query in all heads of a group; arrays are [group, stride].
struct QueryResult {
  int query;
  int rows;                 // rows that a causal mask leaves visible
  const float* logits;      // lowest finite float: hidden
  const float* weights;     // exp(logit - largest)
  const float* normalizers; // [group]: weights times this are probabilities
  int64_t stride;
};

/// Buffers of one evaluation, reused for each head.
struct Workspace {
  std::vector<float> query, logits, weights, weighted_sums, normalizers;
  std::vector<std::vector<float>> wide;
};

/// Computes out[b, h * group + g, l, :] for all g and l over the parts' rows, `shape.rows`
/// together, and what the query read elsewhere, calling `observe` for each query in order.
void attend_head(
    const AttentionShape& shape,
    const mx::array& queries,
    std::vector<RowsPart> parts,
    const MaskView& mask,
    bool low_bias_hides,
    const mx::array* sinks,
    const std::optional<ElsewhereView>& elsewhere,
    int batch,
    int head,
    mx::array& out,
    Workspace& workspace,
    const std::function<void(const QueryResult&)>& observe);

} // namespace h2o::cpu
