#pragma once

// What translated kernels and the runner share. Included by instrumented code, so nothing
// here may pull in templates that the runner uses too: their instrumented copies could be
// the ones that the linker keeps.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#define H2O_INLINABLE __attribute__((no_sanitize("thread")))
#define H2O_UNINSTRUMENTED H2O_INLINABLE __attribute__((noinline))

// A call that must stay one call, under the conditions that the source puts it under. It
// must be on all that is called on the way, or the compiler infers that it is of no use.
#define H2O_MEETING [[clang::nomerge]] __attribute__((convergent))

namespace h2o::host {

enum class Builtin : uint8_t {
  none,
  thread_position_in_grid,
  threads_per_grid,
  threadgroup_position_in_grid,
  threadgroups_per_grid,
  thread_position_in_threadgroup,
  threads_per_threadgroup,
  thread_index_in_threadgroup,
  thread_index_in_simdgroup,
  simdgroup_index_in_threadgroup,
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
  bool reference;
  bool writable;
  uint32_t size; // of what it points at
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

/// The text of a library, with all its instances, and the function constants in it.
struct Library {
  const char* text;
  const int* constants; // -1 behind the last
};

void add_kernel(const Kernel& kernel);
void add_library(const Library& library);

struct Registration {
  explicit Registration(const Kernel& kernel) {
    add_kernel(kernel);
  }
  explicit Registration(const Library& library) {
    add_library(library);
  }
};

template <typename A>
constexpr ArgumentType argument_type() {
  using Pointed = std::remove_pointer_t<std::remove_reference_t<A>>;
  constexpr bool points = std::is_pointer_v<A> || std::is_reference_v<A>;
  return {
      std::is_reference_v<A>, points && !std::is_const_v<Pointed>,
      uint32_t(sizeof(Pointed))};
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
      return A{value[0], value[1], value[2]};
    } else if constexpr (requires { A{}.y; }) {
      return A{value[0], value[1]};
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

/// Storage of one threadgroup variable, the same for all its threads. `ordinal` counts the
/// kernel's variables.
[[gnu::const]] void* threadgroup_storage(
    int ordinal, const char* name, size_t size, size_t alignment) noexcept;

template <typename T>
inline T& shared(int ordinal, const char* name) {
  return *static_cast<T*>(threadgroup_storage(ordinal, name, sizeof(T), alignof(T)));
}

enum class ConstantType : uint8_t { none, boolean, int32 };

/// A function of the pipeline alone, so the compiler may read each constant once; it may
/// not read one where the kernel would not have.
[[gnu::const]] int32_t constant_value(int index, ConstantType, const char* name) noexcept;

/// A function constant: its value is the running pipeline's.
template <typename T, int index>
struct Constant {
  static_assert(std::is_same_v<T, bool> || std::is_same_v<T, int>);
  static_assert(index < 256);
  const char* name;

  operator T() const {
    constexpr auto type =
        std::is_same_v<T, bool> ? ConstantType::boolean : ConstantType::int32;
    return static_cast<T>(constant_value(index, type, name));
  }
};

/// The values that a simdgroup's lanes brought to one operation, and what came of them.
struct Lanes {
  static constexpr int width = 32;
  static constexpr int max_bytes = 8;

  alignas(8) unsigned char in[width][max_bytes];
  alignas(8) unsigned char out[max_bytes];
  uint32_t present;

  template <typename T>
  const T& at(int lane) const {
    static_assert(sizeof(T) <= max_bytes);
    return *reinterpret_cast<const T*>(in[lane]);
  }
};

/// Brings a lane's value and waits until all lanes of its simdgroup have. The last to come
/// calls `finish`. `site` is the place of the call: lanes must come from the same one.
H2O_MEETING Lanes& meet(
    const char* operation,
    const void* site,
    const void* value,
    unsigned size,
    void (*finish)(Lanes&)) noexcept;

int lane_index() noexcept;

H2O_MEETING void wait_for_threadgroup(const void* site) noexcept;

/// Halves the lanes until one value is left, as a GPU does.
template <typename T, T (*combine)(T, T)>
H2O_UNINSTRUMENTED void reduce(Lanes& lanes) {
  T values[Lanes::width];
  int count = 0;
  for (int lane = 0; lane < Lanes::width; ++lane) {
    if ((lanes.present >> lane) & 1) {
      values[count++] = lanes.at<T>(lane);
    }
  }
  while (count > 1) {
    const int half_count = (count + 1) / 2;
    for (int i = 0; i + half_count < count; ++i) {
      values[i] = combine(values[i], values[i + half_count]);
    }
    count = half_count;
  }
  *reinterpret_cast<T*>(lanes.out) = values[0];
}

template <typename T, T (*combine)(T, T)>
H2O_MEETING H2O_UNINSTRUMENTED T reduced(const char* operation, const void* site, T value) {
  const Lanes& lanes = meet(operation, site, &value, sizeof(T), &reduce<T, combine>);
  return *reinterpret_cast<const T*>(lanes.out);
}

template <typename T>
H2O_INLINABLE T sum(T a, T b) {
  return a + b;
}
template <typename T>
H2O_INLINABLE T lesser(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
H2O_INLINABLE T greater(T a, T b) {
  return a < b ? b : a;
}

} // namespace h2o::host

// Internal, as two sources may instantiate two versions of one kernel; not inlined, as its
// caller is not instrumented.
#define H2O_KERNEL [[gnu::noinline]] static

#define H2O_JOIN_(a, b) a##b
#define H2O_JOIN(a, b) H2O_JOIN_(a, b)
#define H2O_REGISTRATION                                            \
  [[maybe_unused]] static const ::h2o::host::Registration H2O_JOIN( \
      h2o_registration_, __COUNTER__)
#define H2O_REGISTER(name, function, ...)                                         \
  H2O_REGISTRATION(                                                               \
      ::h2o::host::Kernel{                                                        \
          name, function##_h2o_signature, ::h2o::host::Entry<__VA_ARGS__>::types, \
          &::h2o::host::Entry<__VA_ARGS__>::invoke})
#define H2O_LIBRARY(text, ...)                              \
  static constexpr int h2o_constants[] = {__VA_ARGS__, -1}; \
  H2O_REGISTRATION(::h2o::host::Library{text, h2o_constants})
