#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "policy_rules.h"
#include "recall.h"

/// Chooses the positions that recall brings back.
namespace h2o {

/// Returns the positions with the highest counts, at most `most_positions`, the best first.
///
/// A position's count is the largest value of `asked_for` at the position itself, at the
/// `spread` positions before it and at the `before` positions after it. So a position
/// that is asked for brings its neighbors. Positions that the policy keeps anyway are not
/// chosen and bring no neighbors. A count of 0, or of less than `threshold` percent of
/// the largest, is not enough. Ties go to the lowest position.
///
/// Args:
///   asked_for: a value for each position from `first` on; negative for a position that
///     cannot be chosen.
///   seen: number of tokens so far.
std::vector<int> choose_positions(
    const std::vector<float>& asked_for,
    int first,
    int seen,
    int most_positions,
    const Policy& policy,
    const Recall& recall);

/// Collects the votes of all layers for one prompt, and chooses positions. The caches that
/// share it may work in different threads.
class Ballot {
 public:
  /// seen: number of tokens so far, including the prompt.
  explicit Ballot(int seen) : seen_(seen) {
  }

  /// Whether the ballot is for this number of tokens and this layer has not voted.
  bool takes(int layer, int seen) const;

  /// Adds a layer's votes: for each query head, its largest probability, squared. Squares
  /// let the few heads that look at one place outvote the many that look everywhere.
  ///
  /// `strongest` is the result of `read_everything`, float32 [B, Hq, N], for the
  /// positions from `first` on; earlier positions were dropped. `policy` and `recall` belong
  /// to the layer's cache.
  void add(
      int layer,
      const mx::array& strongest,
      int first,
      const Policy& policy,
      const Recall& recall,
      mx::StreamOrDevice s = {});

  /// The positions to hold, int32 [B, M], the best first, filled up with -1.
  mx::array chosen(mx::StreamOrDevice s = {});

 private:
  struct Voter {
    Policy policy;
    Recall recall;
  };

  mutable std::mutex mutex_;
  const int seen_;
  int first_ = 0;
  std::optional<mx::array> votes_;
  std::map<int, Voter> voters_; // by layer
  std::optional<mx::array> chosen_;
};

/// The object through which the layers of one conversation vote together.
///
/// Copies of the caches may share it too. A layer that votes again, or for another number
/// of tokens, opens a new ballot, and each cache keeps its ballot until it is counted.
class PromptChoice {
 public:
  /// Adds a layer's votes to the ballot for this number of tokens, and returns the ballot;
  /// the other arguments are those of Ballot::add.
  std::shared_ptr<Ballot> vote(
      int layer,
      int seen,
      const mx::array& strongest,
      int first,
      const Policy& policy,
      const Recall& recall,
      mx::StreamOrDevice s = {});

 private:
  std::mutex mutex_;
  std::shared_ptr<Ballot> ballot_;
};

} // namespace h2o
