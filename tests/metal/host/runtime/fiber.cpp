#include "fiber.h"

#include <cstdint>
#include <cstring>

// Only what a called function must preserve is saved: a switch is a call.
#if defined(__x86_64__)
asm(R"(
.text
.globl h2o_switch_context
.hidden h2o_switch_context
h2o_switch_context:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  retq
)");
#elif defined(__aarch64__)
#if defined(__APPLE__)
#define H2O_SYMBOL "_h2o_switch_context"
#else
#define H2O_SYMBOL "h2o_switch_context"
#endif
asm(".text\n.globl " H2O_SYMBOL "\n.p2align 2\n" H2O_SYMBOL R"(:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
#else
#error "tests/metal/host switches contexts on x86_64 and arm64 only."
#endif

namespace h2o::host {

void* new_context(char* stack, size_t size, void (*entry)()) {
  auto top = reinterpret_cast<uintptr_t>(stack + size) & ~uintptr_t(15);
#if defined(__x86_64__)
  // Six registers, then where to return; a called function expects an odd word on top.
  auto* frame = reinterpret_cast<void**>(top - 8 * sizeof(void*));
  std::memset(frame, 0, 8 * sizeof(void*));
  frame[6] = reinterpret_cast<void*>(entry);
#else
  auto* frame = reinterpret_cast<void**>(top - 160);
  std::memset(frame, 0, 160);
  frame[11] = reinterpret_cast<void*>(entry);
#endif
  return frame;
}

} // namespace h2o::host
