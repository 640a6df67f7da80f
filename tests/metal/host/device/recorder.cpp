#include "recorder.h"

#include <stdexcept>

#include "../runtime/run.h"
#include "evaluation.h"
#include "mlx/backend/cpu/encoder.h"

namespace h2o::host {

namespace {

constexpr int max_index = Slots::count;
constexpr size_t max_bytes = 4096; // Metal's limit of setBytes

std::map<int, uint64_t> epochs;
int committed = 0;
std::string architecture_name = "applegpu_g16p";

std::string kernel_name(const Recorder& recorder) {
  return recorder.pipeline == nullptr ? "before any pipeline was set"
                                      : std::string(recorder.pipeline->kernel->name);
}

} // namespace

void Recorder::bind(int index, Binding binding) {
  if (pipeline == nullptr) {
    throw std::invalid_argument(
        "Something is bound at index " + std::to_string(index) +
        " before set_compute_pipeline_state.");
  }
  if (index < 0 || index >= max_index) {
    throw std::invalid_argument(
        kernel_name(*this) + ": there is no index " + std::to_string(index) +
        "; Metal has 0 to " + std::to_string(max_index - 1) + ".");
  }
  if (!binding.is_array() && binding.bytes.size() > max_bytes) {
    throw std::invalid_argument(
        kernel_name(*this) + ": " + std::to_string(binding.bytes.size()) +
        " bytes are set at index " + std::to_string(index) + "; Metal takes at most " +
        std::to_string(max_bytes) + ".");
  }
  bindings[index] = std::move(binding);
}

void Recorder::barrier() {
  order_everything(stream);
  barrier_pending = true;
}

void Recorder::dispatch(MTL::Size threads, MTL::Size group) {
  if (pipeline == nullptr) {
    throw std::invalid_argument("A dispatch comes before set_compute_pipeline_state.");
  }
  Dispatch made{pipeline,
                bindings,
                threads,
                group,
                stream,
                epochs[stream],
                current_evaluation(),
                barrier_pending};
  check_bindings(made);
  barrier_pending = false;
  mx::cpu::get_command_encoder(mx::Stream(stream, mx::Device::cpu))
      .dispatch([made = std::move(made)] { run_dispatch(made); });
}

void order_everything(int stream) {
  ++epochs[stream];
}

int commits() {
  return committed;
}

void count_commit() {
  ++committed;
}

const std::string& architecture() {
  return architecture_name;
}

void set_architecture(const std::string& name) {
  if (name.empty() || std::string("pgsd").find(name.back()) == std::string::npos) {
    throw std::invalid_argument(
        name + " is no architecture: one ends in p (phone), g, s or d, as applegpu_g16p.");
  }
  architecture_name = name;
}

} // namespace h2o::host

namespace MTL {

ComputeCommandEncoder::ComputeCommandEncoder(int stream)
    : recorder_(std::make_unique<h2o::host::Recorder>()) {
  recorder_->stream = stream;
}

ComputeCommandEncoder::~ComputeCommandEncoder() = default;

void ComputeCommandEncoder::setComputePipelineState(const ComputePipelineState* pipeline) {
  // In Metal, what was bound stays bound; no kernel here should count on it.
  recorder_->bindings.clear();
  recorder_->pipeline = pipeline->pipeline();
}

void ComputeCommandEncoder::setBytes(
    const void* bytes, NS::UInteger length, NS::UInteger index) {
  const char* from = static_cast<const char*>(bytes);
  recorder_->bind(static_cast<int>(index), {.bytes = {from, from + length}});
}

void ComputeCommandEncoder::setThreadgroupMemoryLength(NS::UInteger, NS::UInteger) {
  throw std::logic_error(
      "The host has no threadgroup memory of a length that is set: declare it in the "
      "kernel.");
}

NS::UInteger ComputePipelineState::maxTotalThreadsPerThreadgroup() const {
  return static_cast<NS::UInteger>(pipeline_->kernel->signature.max_threads);
}

} // namespace MTL
