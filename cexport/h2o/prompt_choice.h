#pragma once

#include <map>
#include <memory>

#include "recall.h"

/// One choice of positions for all layers of a model, from what a prompt's last tokens look at.
namespace h2o {

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
