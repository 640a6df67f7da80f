#pragma once

// What translated kernels and the runner share. Included by instrumented code, so nothing
// here may pull in templates that the runner uses too: their instrumented copies could be
// the ones that the linker keeps.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#define H2O_UNINSTRUMENTED __attribute__((no_sanitize("thread"), noinline))

namespace h2o::host {

enum class Builtin : uint8_t {
  none,
  thread_position_in_grid,
  threads_per_grid,
  threadgroup_position_in_grid,
  threadgroups_per_grid,
  thread_position_in_threadgroup,
  threads_per_threadgroup,
  dispatch_threads_per_threadgroup,
  thread_index_in_threadgroup,
  thread_index_in_simdgroup,
  simdgroup_index_in_threadgroup,
  simdgroups_per_threadgroup,
  threads_per_simdgroup,
  thread_index_in_quadgroup,
  quadgroup_index_in_threadgroup,
};

/// A parameter as the kernel declares it: with a buffer's index, or a built-in value.
struct Parameter {
  const char* name = "";
  int index = -1;
  Builtin builtin = Builtin::none;
  const char* gate = nullptr; // the function constant that says whether it exists
  bool (*gate_is_on)() = nullptr;
};

struct Signature {
  const Parameter* parameters;
  int count;
  int max_threads;
};

/// What the type of a parameter says about its buffer.
struct ArgumentType {
  bool pointer;
  bool reference;
  bool writable;
  uint32_t size; // of what it points at; 0 if unknown
};

struct Vector3 {
  uint32_t value[3];
};

/// One thread's call: an address for each buffer, a value for each built-in.
struct Call {
  void* const* addresses;
  const Vector3* builtins;
};

struct Kernel {
  const char* name;
  Signature signature;
  const ArgumentType* types;
  void (*invoke)(const Call&);
};

void add_kernel(const Kernel& kernel);

template <typename A>
constexpr ArgumentType argument_type() {
  using Pointed = std::remove_pointer_t<std::remove_reference_t<A>>;
  constexpr bool points = std::is_pointer_v<A> || std::is_reference_v<A>;
  uint32_t size = 0;
  if constexpr (!std::is_void_v<Pointed>) {
    size = sizeof(Pointed);
  }
  return {
      std::is_pointer_v<A>, std::is_reference_v<A>, points && !std::is_const_v<Pointed>,
      size};
}

template <typename A>
H2O_UNINSTRUMENTED A argument(const Call& call, size_t i) {
  if constexpr (std::is_pointer_v<A>) {
    return reinterpret_cast<A>(call.addresses[i]);
  } else if constexpr (std::is_reference_v<A>) {
    return *reinterpret_cast<std::remove_reference_t<A>*>(call.addresses[i]);
  } else {
    const uint32_t* value = call.builtins[i].value;
    if constexpr (requires { A{}.z; }) {
      return A(value[0], value[1], value[2]);
    } else if constexpr (requires { A{}.y; }) {
      return A(value[0], value[1]);
    } else {
      return A(value[0]);
    }
  }
}

template <auto function>
struct Entry;

template <typename... A, void (*function)(A...)>
struct Entry<function> {
  static constexpr ArgumentType types[] = {argument_type<A>()..., ArgumentType{}};

  H2O_UNINSTRUMENTED static void invoke(const Call& call) {
    call_with(call, std::index_sequence_for<A...>());
  }

 private:
  template <size_t... i>
  H2O_UNINSTRUMENTED static void call_with(const Call& call, std::index_sequence<i...>) {
    function(argument<A>(call, i)...);
  }
};

/// The text of a library, with all its instances, and the function constants in it.
struct Library {
  const char* text;
  const int* constants; // -1 behind the last
};

void add_library(const Library& library);

struct Registration {
  Registration(
      const char* name,
      const Signature& signature,
      const ArgumentType* types,
      void (*invoke)(const Call&)) {
    add_kernel({name, signature, types, invoke});
  }
  explicit Registration(const Library& library) {
    add_library(library);
  }
};

/// Storage of one threadgroup variable, the same for all its threads. `ordinal` counts the
/// kernel's variables.
[[gnu::const]] void* threadgroup_storage(
    int ordinal, const char* name, size_t size, size_t alignment) noexcept;

template <typename T>
inline T& shared(int ordinal, const char* name) {
  return *static_cast<T*>(threadgroup_storage(ordinal, name, sizeof(T), alignof(T)));
}

} // namespace h2o::host

// Internal, as two sources may instantiate two versions of one kernel; not inlined, as its
// caller is not instrumented.
#define H2O_KERNEL [[gnu::noinline]] static

#define H2O_JOIN_(a, b) a##b
#define H2O_JOIN(a, b) H2O_JOIN_(a, b)
#define H2O_REGISTER(name, function, ...)                                   \
  [[maybe_unused]] static const ::h2o::host::Registration H2O_JOIN(         \
      h2o_registration_, __COUNTER__) {                                     \
    name, function##_h2o_signature, ::h2o::host::Entry<__VA_ARGS__>::types, \
        &::h2o::host::Entry<__VA_ARGS__>::invoke                            \
  }
#define H2O_LIBRARY(text, ...)                                          \
  static constexpr int h2o_constants[] = {__VA_ARGS__, -1};             \
  [[maybe_unused]] static const ::h2o::host::Registration h2o_library { \
    ::h2o::host::Library {                                              \
      text, h2o_constants                                               \
    }                                                                   \
  }
#define instantiate_kernel(name, function, ...) \
  H2O_REGISTER(name, function, &function<__VA_ARGS__>);
