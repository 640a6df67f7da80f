#pragma once

#include <map>
#include <memory>
#include <vector>

#include "policy_rules.h"
#include "recall.h"

/// Which positions come back, from how much each is asked for.
namespace h2o {

/// Whether every cache of this policy keeps the position, once it has seen so many tokens.
bool is_kept_anyway(const Policy& policy, int position, int seen);

/// The positions asked for most, at most `wanted`, the best first.
///
/// A position counts as much as the largest of itself, the `spread` before it and the `before`
/// after it: what is asked for brings its neighbors along. What is kept anyway neither
/// comes nor brings anything. Those stay out that count 0 or less than `threshold` percent of
/// the largest. Ties go to the lowest position.
///
/// Args:
///   asked_for: of the positions from `first` on; negative where one cannot come.
///   seen: tokens so far.
std::vector<int> choose_positions(
    const std::vector<float>& asked_for,
    int first,
    int seen,
    int wanted,
    const Policy& policy,
    const Recall& recall);

/// The votes of all layers for one prompt, and the positions that they choose.
class Ballot {
 public:
  /// `seen` tokens so far, the prompt's included.
  explicit Ballot(int seen) : seen_(seen) {
  }

  /// Whether it is of so many tokens and still open to this layer.
  bool takes(int layer, int seen) const {
    return seen_ == seen && !voters_.contains(layer) && !chosen_;
  }

  /// Counts a layer's votes: of each query head, its largest probability squared. Squares let
  /// the few heads that look at one place outvote the many that look everywhere.
  ///
  /// `strongest` is float32 [B, Hq, N], as `read_everything` gives it, of the positions from
  /// `first` on; those before it are gone. Policy and recall are those of the layer's cache.
  void add(
      int layer,
      const mx::array& strongest,
      int first,
      const Policy& policy,
      const Recall& recall,
      mx::StreamOrDevice s = {});

  /// The positions to hold, int32 [B, M], the best first and -1 for none.
  const mx::array& chosen(mx::StreamOrDevice s = {});

 private:
  struct Voter {
    Policy policy;
    Recall recall;
  };

  int seen_;
  int first_ = 0;
  std::optional<mx::array> votes_;
  std::map<int, Voter> voters_; // by layer
  std::optional<mx::array> chosen_;
};

/// What the caches of one conversation share, so that their layers vote together.
///
/// A copy of the caches may share it too: who votes again, or for another number of tokens,
/// opens a new ballot, and each cache keeps its own until it is counted.
class PromptChoice {
 public:
  /// The ballot that a layer votes in once so many tokens were seen.
  std::shared_ptr<Ballot> ballot(int layer, int seen);

 private:
  std::shared_ptr<Ballot> ballot_;
};

} // namespace h2o
