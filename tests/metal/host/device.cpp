// The members of MLX's Metal device and encoder that dispatching code calls, with MLX's own
// rules of when an encoder puts a barrier, as mlx-swift's MLX 0.31 has them: those of 0.32,
// which also order a write after a read, put more.

#include "mlx/backend/metal/device.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "evaluate.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/scheduler.h"

namespace h2o::host {

namespace {

std::string architecture = "applegpu_g16p";
int committed = 0;
std::map<int, uint64_t> epochs; // by stream: nothing of one runs together with another's

struct Bound {
  const void* data;
  int index;
  std::string kernel;
};

/// One eval_gpu on a stream, from its first binding to its last dispatch. It collects what
/// is bound, to find scratch that nobody keeps alive.
struct Evaluation {
  uint64_t number;
  std::vector<Bound> bound;
  std::vector<const void*> live_data;
};
// eval_gpu is called by one thread, whichever evaluates.
thread_local Evaluation* current = nullptr;
uint64_t evaluations = 0;
std::set<int> streams;

const void* data_of(const mx::array& array) {
  return array.data_shared_ptr().get();
}

mx::metal::CommandEncoder& encoder_of(int stream) {
  return mx::metal::get_command_encoder(mx::Stream(stream, mx::Device::gpu));
}

void commit(int stream) {
  encoder_of(stream).end_encoding();
  encoder_of(stream).commit();
}

Vector3 to_vector(const MTL::Size& size) {
  return {{uint32_t(size.width), uint32_t(size.height), uint32_t(size.depth)}};
}

} // namespace

void evaluate(
    mx::Stream stream,
    const std::vector<mx::array>& inputs,
    std::vector<mx::array>& outputs,
    void (*eval_gpu)(void*, const std::vector<mx::array>&, std::vector<mx::array>&),
    void* primitive) {
  Evaluation evaluation{++evaluations, {}, {}};
  for (const auto& input : inputs) {
    evaluation.live_data.push_back(data_of(input));
    allocation_of(input); // somebody else made it
  }
  streams.insert(stream.index);
  current = &evaluation;
  try {
    eval_gpu(primitive, inputs, outputs);
    for (const auto& output : outputs) {
      evaluation.live_data.push_back(data_of(output));
    }
    for (const Bound& binding : evaluation.bound) {
      if (std::find(
              evaluation.live_data.begin(), evaluation.live_data.end(), binding.data) ==
          evaluation.live_data.end()) {
        throw std::logic_error(
            binding.kernel + ": the scratch buffer at index " +
            std::to_string(binding.index) + " is not kept alive: use add_temporary.");
      }
    }
  } catch (...) {
    current = nullptr;
    commit(stream.index);
    throw;
  }
  current = nullptr;
  if (encoder_of(stream.index).needs_commit()) {
    commit(stream.index);
  }
}

void commit_all() {
  for (int stream : streams) {
    commit(stream);
  }
}

int commits() {
  return committed;
}

void wait_for_all() {
  for (int stream : streams) {
    mx::synchronize(mx::Stream(stream, mx::Device::cpu));
  }
}

void set_architecture(const std::string& name) {
  commit_all();
  architecture = name;
}

} // namespace h2o::host

namespace MTL {

namespace host = h2o::host;

void ComputeCommandEncoder::setComputePipelineState(const ComputePipelineState* pipeline) {
  // In Metal, what was bound stays bound; no kernel here should count on it.
  bindings_.clear();
  pipeline_ = pipeline->pipeline();
}

void ComputeCommandEncoder::setBytes(
    const void* bytes, NS::UInteger length, NS::UInteger index) {
  constexpr NS::UInteger limit = 4096; // Metal's of setBytes
  if (length > limit) {
    throw std::invalid_argument(
        std::to_string(length) + " bytes are set at index " + std::to_string(index) +
        "; Metal takes at most " + std::to_string(limit) + ".");
  }
  const char* from = static_cast<const char*>(bytes);
  bind(index, {.bytes = {from, from + length}});
}

void ComputeCommandEncoder::bind(NS::UInteger index, host::Binding binding) {
  constexpr NS::UInteger count = 31;
  if (pipeline_ == nullptr || index >= count) {
    throw std::invalid_argument(
        pipeline_ == nullptr ? "Something is bound before a pipeline is set."
                             : "There is no index " + std::to_string(index) +
                                   "; Metal has 0 to " + std::to_string(count - 1) + ".");
  }
  if (host::current != nullptr && binding.is_array()) {
    host::current->bound.push_back(
        {binding.data.get(), int(index), pipeline_->kernel->name});
  }
  bindings_[int(index)] = std::move(binding);
}

void ComputeCommandEncoder::mark_output(NS::UInteger index) {
  bindings_.at(int(index)).output = true;
}

void ComputeCommandEncoder::barrier() {
  ++host::epochs[stream_];
  barrier_pending_ = true;
}

void ComputeCommandEncoder::end() {
  ++host::epochs[stream_];
  pipeline_ = nullptr;
  bindings_.clear();
  barrier_pending_ = false;
}

void ComputeCommandEncoder::dispatch(Size threads, Size group) {
  host::Dispatch dispatch{
      pipeline_,
      bindings_,
      host::to_vector(threads),
      host::to_vector(group),
      stream_,
      host::epochs[stream_],
      host::current == nullptr ? 0 : host::current->number,
      std::exchange(barrier_pending_, false)};
  check_bindings(dispatch);
  mlx::core::cpu::get_command_encoder(mlx::core::Stream(stream_, mlx::core::Device::cpu))
      .dispatch([dispatch = std::move(dispatch)] { run_dispatch(dispatch); });
}

} // namespace MTL

namespace mlx::core::metal {

namespace host = h2o::host;

// Nothing is ever paged out here.
ResidencySets::ResidencySets(MTL::Device*) {
}

ResidencySets::~ResidencySets() = default;

Device::Device()
    : residency_sets_(nullptr), default_library_(new MTL::Library), arch_gen_(16) {
  arch_ = host::architecture;
  const bool is_phone = arch_.back() == 'p', is_small = is_phone || arch_.back() == 'g';
  max_ops_per_buffer_ = is_phone ? 20 : is_small ? 40 : 50;
  max_mb_per_buffer_ = is_small ? 40 : 50;
}

Device::~Device() = default;

MTL::Library* Device::get_library(
    const std::string& name,
    const CompileOptions& options,
    const std::function<std::string(void)>& builder) {
  if (options.math_mode != MathMode::Safe) {
    throw std::invalid_argument(name + " is compiled with fast math.");
  }
  auto& library = library_map_[name];
  if (library == nullptr) {
    const host::Library& text = host::find_library(builder());
    library.reset(new MTL::Library);
    for (const int* index = text.constants; *index >= 0; ++index) {
      library->constants.push_back(*index);
    }
  }
  return library.get();
}

MTL::ComputePipelineState* Device::get_kernel(
    const std::string& base_name,
    MTL::Library* library,
    const std::string& hash_name,
    const MTLFCList& constants,
    const std::vector<MTL::Function*>&) {
  host::Pipeline pipeline{&host::find_kernel(base_name), {}};
  for (const auto& [value, type, index] : constants) {
    pipeline.constants[int(index)] =
        type == MTL::DataTypeBool
            ? host::
                  ConstantValue{host::ConstantType::boolean, *static_cast<const bool*>(value)}
            : host::ConstantValue{
                  host::ConstantType::int32, *static_cast<const int32_t*>(value)};
  }
  for (int index : library->constants) {
    if (!pipeline.constants.contains(index)) {
      throw std::invalid_argument(
          base_name + ": function constant " + std::to_string(index) +
          " is declared in its text and has no value.");
    }
  }
  auto& state = library_kernels_[library][hash_name];
  if (state == nullptr) {
    state.reset(new MTL::ComputePipelineState(std::move(pipeline)));
  } else if (
      state->pipeline()->kernel != pipeline.kernel ||
      state->pipeline()->constants != pipeline.constants) {
    throw std::logic_error(
        "The hash name " + hash_name + " of " + base_name +
        " already stands for other constants or another kernel, which MLX would return.");
  }
  return state.get();
}

MTL::ComputePipelineState* Device::get_kernel(
    const std::string& base_name,
    const std::string& hash_name,
    const MTLFCList& constants,
    const std::vector<MTL::Function*>& linked_functions) {
  return get_kernel(
      base_name, default_library_.get(), hash_name, constants, linked_functions);
}

Device& device(mlx::core::Device) {
  // One for each architecture, as its name cannot change; they live as long as MLX's.
  static std::map<std::string, Device*> devices;
  auto& device = devices[host::architecture];
  if (device == nullptr) {
    device = new Device;
  }
  return *device;
}

/// MLX compares addresses of buffers, which no two live buffers share. Here memory may be
/// freed and come back while a device would still hold it: the allocation tells.
static MTL::Resource* resource_of(const array& a) {
  static std::map<uint64_t, std::unique_ptr<MTL::Resource>> resources;
  auto& resource = resources[host::allocation_of(a)->id];
  if (resource == nullptr) {
    resource = std::make_unique<MTL::Resource>();
  }
  return resource.get();
}

CommandEncoder::CommandEncoder(Device& d, int index, ResidencySets& residency_sets)
    : device_(d),
      residency_sets_(residency_sets),
      encoder_{new MTL::ComputeCommandEncoder(index)} {
}

CommandEncoder::~CommandEncoder() = default;

MTL::ComputeCommandEncoder* CommandEncoder::get_command_encoder() {
  return encoder_.get();
}

void CommandEncoder::set_input_array(const array& a, int idx, int64_t offset) {
  if (all_inputs_.insert(a.buffer().ptr()).second) {
    buffer_sizes_ += a.data_size();
  }
  needs_barrier_ = needs_barrier_ || prev_outputs_.contains(resource_of(a));
  encoder_->bind(
      idx, {.data = a.data_shared_ptr(),
            .allocation = host::allocation_of(a),
            .offset = static_cast<int64_t>(a.offset()) + offset});
}

void CommandEncoder::set_output_array(array& a, int idx, int64_t offset) {
  host::allocation_of(a, host::current == nullptr ? 0 : host::current->number);
  set_input_array(a, idx, offset);
  encoder_->mark_output(idx);
  all_outputs_.insert(a.buffer().ptr());
  (concurrent_ ? concurrent_outputs_ : next_outputs_).insert(resource_of(a));
}

void CommandEncoder::maybeInsertBarrier() {
  if (needs_barrier_) {
    encoder_->barrier();
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
  encoder_->dispatch(grid_dims, group_dims);
}

void CommandEncoder::barrier() {
  encoder_->barrier();
}

void CommandEncoder::add_temporary(array arr) {
  if (host::current != nullptr) {
    host::current->live_data.push_back(host::data_of(arr));
  }
  temporaries_.push_back(std::move(arr));
}

void CommandEncoder::end_encoding(bool) {
  encoder_->end();
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
  host::committed += buffer_ops_ > 0;
  buffer_ops_ = 0;
  buffer_sizes_ = 0;
  temporaries_.clear();
}

CommandEncoder& get_command_encoder(Stream s) {
  static std::map<std::pair<Device*, int>, std::unique_ptr<CommandEncoder>> encoders;
  Device& d = device(s.device);
  auto& encoder = encoders[{&d, s.index}];
  if (encoder == nullptr) {
    encoder = std::make_unique<CommandEncoder>(d, s.index, d.residency_sets());
  }
  return *encoder;
}

} // namespace mlx::core::metal
