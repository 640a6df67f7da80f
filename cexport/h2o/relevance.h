#pragma once

#include "archive.h"

/// How much the last queries of a prompt ask for each archived position.
namespace h2o {

/// The asking tokens, which neither cache nor archive has yet.
struct Asking {
  mx::array queries; // [B, Hq, a, Dk]
  mx::array keys;    // [B, Hkv, a, Dk]
  float scale;
  Mask mask;                      // broadcasts to [B, Hq, a, a]; none: causal
  std::optional<mx::array> sinks; // [Hq]
};

/// For each position j of an archive, from its first: the largest over the queries of the
/// mean over the head group of the attention probability of j, over all archived positions
/// and the asking tokens. -1 where no logit is finite.
///
/// One KV head at a time, whose logits, Hq / Hkv * a * positions floats, are kept. The
/// archive is read once, packed as it is, and widened 256 positions at a time.
class RelevanceOfHeads {
 public:
  RelevanceOfHeads(const Asking& asking, ArchiveReader& archive)
      : asking_(asking), archive_(archive) {
  }

  /// `relevance` has a float for each position of the archive.
  void compute(int batch, int head, float* relevance);

 private:
  const Asking& asking_;
  ArchiveReader& archive_;
  std::vector<float> queries_, logits_, wide_, most_, mean_, storage_;

  void compute_logits(int batch, int head, int64_t stride);
};

/// The same [B, Hkv, positions] in MLX operations, for a GPU; as many heads at once as have
/// logits of at most 32 MiB. Not evaluated.
mx::array relevance_in_operations(
    const Asking& asking, Archive& archive, mx::StreamOrDevice s);

} // namespace h2o
