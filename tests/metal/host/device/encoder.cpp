// MLX's own rules of when an encoder puts a barrier, as mlx-swift's MLX 0.31 has them:
// those of 0.32, which also order a write after a read, put more.

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

CommandEncoder::CommandEncoder(Device& d, int index, ResidencySets& residency_sets)
    : device_(d),
      residency_sets_(residency_sets),
      encoder_{new MTL::ComputeCommandEncoder(index)} {
}

CommandEncoder::~CommandEncoder() = default;

MTL::ComputeCommandEncoder* CommandEncoder::get_command_encoder() {
  return encoder_.get();
}

void CommandEncoder::set_buffer(const MTL::Buffer*, int idx, int64_t) {
  throw std::logic_error(
      "set_buffer at index " + std::to_string(idx) +
      ": it knows no array, so MLX puts no barrier; use set_input_array.");
}

void CommandEncoder::set_input_array(const array& a, int idx, int64_t offset) {
  if (all_inputs_.insert(a.buffer().ptr()).second) {
    buffer_sizes_ += a.data_size();
  }
  needs_barrier_ = needs_barrier_ || prev_outputs_.contains(resource_of(a));
  auto& recorder = encoder_->recorder();
  recorder.bind(
      idx, {.data = a.data_shared_ptr(),
            .allocation = h2o::host::allocation_of(a),
            .offset = static_cast<int64_t>(a.offset()) + offset});
  h2o::host::note_bound(a, idx, recorder.pipeline->kernel->name);
}

void CommandEncoder::set_output_array(array& a, int idx, int64_t offset) {
  h2o::host::allocation_of(a, h2o::host::current_evaluation());
  set_input_array(a, idx, offset);
  encoder_->recorder().bindings.at(idx).output = true;
  register_output_array(a);
}

void CommandEncoder::register_output_array(const array& a) {
  all_outputs_.insert(a.buffer().ptr());
  (concurrent_ ? concurrent_outputs_ : next_outputs_).insert(resource_of(a));
}

void CommandEncoder::maybeInsertBarrier() {
  if (needs_barrier_) {
    encoder_->recorder().barrier();
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
  buffer_ops_++;
  encoder_->recorder().dispatch(grid_dims, group_dims);
}

void CommandEncoder::barrier() {
  encoder_->recorder().barrier();
}

void CommandEncoder::add_temporary(array arr) {
  h2o::host::note_temporary(arr);
  temporaries_.push_back(std::move(arr));
}

void CommandEncoder::end_encoding(bool) {
  encoder_.reset(new MTL::ComputeCommandEncoder(encoder_->recorder().stream));
  needs_barrier_ = false;
  prev_outputs_.clear();
  next_outputs_.clear();
  all_inputs_.clear();
  all_outputs_.clear();
}

bool CommandEncoder::needs_commit() const {
  auto [max_ops, max_mb] = device_.get_max_ops_mb_per_buffer();
  return buffer_ops_ > max_ops || static_cast<int>(buffer_sizes_ >> 20) > max_mb;
}

void CommandEncoder::commit(std::function<void()>) {
  if (buffer_ops_ > 0) {
    h2o::host::count_commit();
  }
  h2o::host::order_everything(encoder_->recorder().stream);
  buffer_ops_ = 0;
  buffer_sizes_ = 0;
  temporaries_.clear();
}

CommandEncoder& get_command_encoder(Stream s) {
  static std::map<std::pair<Device*, int>, std::unique_ptr<CommandEncoder>> encoders;
  Device& d = device(s.device);
  auto& found = encoders[{&d, s.index}];
  if (found == nullptr) {
    found = std::make_unique<CommandEncoder>(d, s.index, d.residency_sets());
  }
  return *found;
}

} // namespace mlx::core::metal
