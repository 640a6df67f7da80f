#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#ifdef __APPLE__
#include <CommonCrypto/CommonDigest.h>
#endif

/// SHA-256 (FIPS 180-4): the system's implementation on Apple, which uses special
/// instructions, and our own elsewhere, because neither libc nor MLX has one.
namespace h2o {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();

  void add(std::string_view bytes);

  /// Returns the digest of all bytes that were added. The object cannot be used
  /// afterwards.
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

Digest sha256(std::string_view bytes);

/// Writes a digest as 64 lowercase hexadecimal digits.
std::string to_hex(const Digest& digest);

/// Parses the text that `to_hex` writes; another text gives another digest.
Digest from_hex(const std::string& text);

} // namespace h2o
