#include "build.h"
#if H2O_METAL

#include "encode.h"
#include "library.h"

namespace h2o::metal {

namespace {

std::string joined(const std::vector<std::string>& parts, const std::string& separator) {
  std::string text;
  for (const auto& part : parts) {
    text += (text.empty() ? "" : separator) + part;
  }
  return text;
}

} // namespace

std::string KernelInstance::name() const {
  return kernel + "_" + joined(arguments, "_");
}

MTL::Library* library(mlx::core::metal::Device& device, const KernelInstance& instance) {
  const std::string name = instance.name();
  return device.get_library(name, [&] {
    const auto type = instance.kernel + "<" + joined(instance.arguments, ", ") + ">";
    return kernel_text(instance.kernel) + "template [[host_name(\"" + name +
           "\")]] [[kernel]] decltype(" + type + ") " + type + ";\n";
  });
}

void compile_kernel(const std::string& kernel, const std::vector<std::string>& arguments) {
  library(mlx::core::metal::device(mlx::core::Device::gpu), {kernel, arguments});
}

} // namespace h2o::metal

#endif
