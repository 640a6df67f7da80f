#pragma once

#include "../runtime/dispatch.h"
#include "mlx/stream.h"

namespace h2o::host {

/// What a compute command encoder is told until it dispatches. Runs go to the CPU stream
/// of the same index, so that whoever records them sees no results.
struct Recorder {
  int stream;
  std::shared_ptr<const Pipeline> pipeline;
  std::map<int, Binding> bindings;
  bool barrier_pending = false;

  void bind(int index, Binding binding);
  void barrier();
  void dispatch(MTL::Size threads, MTL::Size group);
};

/// Begins another epoch on a stream: nothing that comes runs together with what came.
void order_everything(int stream);

/// Command buffers committed so far, on all streams.
int commits();
void count_commit();

/// Of the device that MLX asks for; set_architecture changes it.
const std::string& architecture();
void set_architecture(const std::string& name);

} // namespace h2o::host
