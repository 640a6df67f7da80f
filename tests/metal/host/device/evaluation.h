#pragma once

#include <string>
#include <vector>

#include "../runtime/allocations.h"
#include "mlx/stream.h"

namespace h2o::host {

/// One eval_gpu on a stream, from its first binding to its last dispatch. While it lasts
/// it collects what is bound, to find scratch that nobody keeps alive.
class Evaluation {
 public:
  Evaluation(
      mx::Stream stream,
      const std::vector<mx::array>& inputs,
      const std::vector<mx::array>& outputs);
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;
  ~Evaluation();

  /// Throws if something that was bound is not kept alive. Commits where MLX would.
  void finish();

 private:
  mx::Stream stream_;
  const std::vector<mx::array>& outputs_;
  std::vector<const void*> kept_;
  bool finished_ = false;
};

/// A number of the evaluation that lasts; 0 if none does.
uint64_t current_evaluation();

/// Tells the evaluation that lasts what is bound.
void note_bound(const mx::array& array, int index, const std::string& kernel);

/// Tells it what is kept alive until the device is done.
void note_temporary(const mx::array& array);

/// Ends the command buffer of every stream that has one, as MLX does after each eval.
void commit_all();

/// Waits for everything that was dispatched.
void wait_for_all();

} // namespace h2o::host
