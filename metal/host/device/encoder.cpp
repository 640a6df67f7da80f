// MLX's own rules of when an encoder puts a barrier, kept line for line in meaning.

#include "evaluation.h"
#include "mlx/backend/metal/device.h"
#include "recorder.h"

namespace mlx::core::metal {

namespace {

/// MLX compares addresses of buffers, which no two live buffers share. Here memory may be
/// freed and come back while a device would still hold it: the allocation tells.
MTL::Resource* resource_of(const array& a) {
  static std::map<uint64_t, std::unique_ptr<MTL::Resource>> resources;
  auto& resource = resources[h2o::host::allocation_of(a)->id];
  if (resource == nullptr) {
    resource = std::make_unique<MTL::Resource>();
  }
  return resource.get();
}

} // namespace

CommandEncoder::CommandEncoder(DeviceStream& stream) : stream_(stream) {
  enc_ = new MTL::ComputeCommandEncoder(stream.queue->stream);
}

CommandEncoder::~CommandEncoder() {
  delete enc_;
}

void CommandEncoder::set_buffer(const MTL::Buffer*, int idx, int64_t) {
  throw std::logic_error(
      "set_buffer at index " + std::to_string(idx) +
      ": it knows no array, so MLX puts no barrier; use set_input_array.");
}

void CommandEncoder::set_input_array(const array& a, int idx, int64_t offset) {
  if (all_inputs_.insert(a.buffer().ptr()).second) {
    stream_.buffer_sizes += a.data_size();
  }
  needs_barrier_ = needs_barrier_ || prev_outputs_.contains(resource_of(a));
  auto& recorder = enc_->recorder();
  recorder.bind(
      idx, {.data = a.data_shared_ptr(),
            .allocation = h2o::host::allocation_of(a),
            .offset = static_cast<int64_t>(a.offset()) + offset});
  h2o::host::note_bound(a, idx, recorder.pipeline->kernel->name);
}

void CommandEncoder::set_output_array(array& a, int idx, int64_t offset) {
  h2o::host::allocation_of(a, h2o::host::current_evaluation());
  set_input_array(a, idx, offset);
  enc_->recorder().bindings.at(idx).output = true;
  register_output_array(a);
}

void CommandEncoder::register_output_array(const array& a) {
  all_outputs_.insert(a.buffer().ptr());
  (concurrent_ ? concurrent_outputs_ : next_outputs_).insert(resource_of(a));
}

void CommandEncoder::maybeInsertBarrier() {
  if (needs_barrier_) {
    enc_->recorder().barrier();
    needs_barrier_ = false;
    prev_outputs_ = std::move(next_outputs_);
  } else {
    prev_outputs_.insert(next_outputs_.begin(), next_outputs_.end());
  }
  next_outputs_.clear();
}

void CommandEncoder::dispatch_threadgroups(MTL::Size grid_dims, MTL::Size group_dims) {
  dispatch_threads(
      {grid_dims.width * group_dims.width, grid_dims.height * group_dims.height,
       grid_dims.depth * group_dims.depth},
      group_dims);
}

void CommandEncoder::dispatch_threads(MTL::Size grid_dims, MTL::Size group_dims) {
  maybeInsertBarrier();
  stream_.buffer_ops++;
  enc_->recorder().dispatch(grid_dims, group_dims);
}

void CommandEncoder::barrier() {
  enc_->recorder().barrier();
}

} // namespace mlx::core::metal
