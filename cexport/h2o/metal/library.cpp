#include "build.h"
#if H2O_METAL

#include "library.h"

#ifdef H2O_METALLIB
#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>
#endif

namespace h2o::metal {

#ifdef H2O_METALLIB

namespace {

/// The library that was built with this module and lies beside it.
std::string library_path() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&library_path), &info)) {
    throw std::runtime_error("[h2o] The folder of this module cannot be found.");
  }
  auto path = std::filesystem::path(info.dli_fname).parent_path() / H2O_METALLIB;
  if (!std::filesystem::exists(path)) {
    throw std::runtime_error(
        "[h2o] " + path.string() + " is missing. Install h2o-pack again.");
  }
  return path.string();
}

} // namespace

MTL::ComputePipelineState* pipeline(
    mlx::core::metal::Device& device,
    const std::string& name,
    const std::string& specialized,
    const mlx::core::metal::MTLFCList& constants) {
  static const std::string path = library_path();
  MTL::Library* library = device.get_library("h2o", path);
  return device.get_kernel(name, library, specialized, constants);
}

#else

/// Where MLX is built together with our kernels, they are in its own library.
MTL::ComputePipelineState* pipeline(
    mlx::core::metal::Device& device,
    const std::string& name,
    const std::string& specialized,
    const mlx::core::metal::MTLFCList& constants) {
  return device.get_kernel(name, specialized, constants);
}

#endif

} // namespace h2o::metal

#endif
