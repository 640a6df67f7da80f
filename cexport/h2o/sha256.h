#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#ifdef __APPLE__
#include <CommonCrypto/CommonDigest.h>
#endif

/// SHA-256 (FIPS 180-4): the system's on Apple, where it has instructions of its own, and a
/// plain one elsewhere, since neither libc nor MLX offers any.
namespace h2o {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();

  void add(const void* data, size_t size);
  void add(const std::string& text) {
    add(text.data(), text.size());
  }

  /// The digest of all that was added; ends the object's use.
  Digest digest();

 private:
#ifdef __APPLE__
  CC_SHA256_CTX state_;
#else
  void block(const uint8_t* data);

  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> tail_;
  uint64_t size_ = 0;
#endif
};

Digest sha256(const std::string& text);

/// 64 lower-case hexadecimal digits.
std::string to_hex(const Digest& digest);

/// False where `text` is anything else.
bool from_hex(const std::string& text, Digest& digest);

} // namespace h2o
