#include "evaluation.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "../evaluate.h"
#include "mlx/backend/metal/device.h"
#include "mlx/scheduler.h"
#include "recorder.h"

namespace h2o::host {

namespace {

struct Bound {
  const void* data;
  int index;
  std::string kernel;
};

// eval_gpu is called by one thread, whichever evaluates.
thread_local std::vector<Bound>* collecting = nullptr;
thread_local std::vector<Bound> bound;
thread_local std::vector<const void*> temporaries;
uint64_t evaluations = 0;
std::set<int> streams;

mx::metal::CommandEncoder& encoder_of(int stream) {
  return mx::metal::get_command_encoder(mx::Stream(stream, mx::Device::gpu));
}

void commit(int stream) {
  encoder_of(stream).end_encoding();
  encoder_of(stream).commit();
}

} // namespace

Evaluation::Evaluation(
    mx::Stream stream,
    const std::vector<mx::array>& inputs,
    const std::vector<mx::array>& outputs)
    : stream_(stream), outputs_(outputs) {
  for (const auto& input : inputs) {
    kept_.push_back(input.data_shared_ptr().get());
    allocation_of(input); // somebody else made it
  }
  streams.insert(stream.index);
  bound.clear();
  temporaries.clear();
  collecting = &bound;
  ++evaluations;
}

Evaluation::~Evaluation() {
  collecting = nullptr;
  if (!finished_) {
    commit(stream_.index);
  }
}

void Evaluation::finish() {
  for (const auto& output : outputs_) {
    kept_.push_back(output.data_shared_ptr().get());
  }
  kept_.insert(kept_.end(), temporaries.begin(), temporaries.end());
  for (const Bound& one : bound) {
    if (std::find(kept_.begin(), kept_.end(), one.data) == kept_.end()) {
      throw std::logic_error(
          one.kernel + ": the scratch buffer at index " + std::to_string(one.index) +
          " is not kept alive: use add_temporary.");
    }
  }
  if (encoder_of(stream_.index).needs_commit()) {
    commit(stream_.index);
  }
  finished_ = true;
}

uint64_t current_evaluation() {
  return collecting == nullptr ? 0 : evaluations;
}

void note_bound(const mx::array& array, int index, const std::string& kernel) {
  if (collecting != nullptr) {
    collecting->push_back({array.data_shared_ptr().get(), index, kernel});
  }
}

void note_temporary(const mx::array& array) {
  temporaries.push_back(array.data_shared_ptr().get());
}

void commit_all() {
  for (int stream : streams) {
    commit(stream);
  }
}

void wait_for_all() {
  for (int stream : streams) {
    mx::synchronize(mx::Stream(stream, mx::Device::cpu));
  }
}

void evaluate(
    mx::Stream stream,
    const std::vector<mx::array>& inputs,
    std::vector<mx::array>& outputs,
    void (*eval_gpu)(void*, const std::vector<mx::array>&, std::vector<mx::array>&),
    void* primitive) {
  Evaluation evaluation(stream, inputs, outputs);
  eval_gpu(primitive, inputs, outputs);
  evaluation.finish();
}

} // namespace h2o::host
