#include "sha256.h"

#include <algorithm>
#include <bit>
#include <charconv>

namespace h2o {

#ifdef __APPLE__

Sha256::Sha256() {
  CC_SHA256_Init(&state_);
}

void Sha256::add(std::string_view bytes) {
  while (!bytes.empty()) { // the system's function takes 32-bit sizes
    size_t now = std::min(bytes.size(), size_t(1) << 30);
    CC_SHA256_Update(&state_, bytes.data(), static_cast<CC_LONG>(now));
    bytes.remove_prefix(now);
  }
}

Digest Sha256::digest() {
  Digest result;
  CC_SHA256_Final(result.data(), &state_);
  return result;
}

#else

namespace {

constexpr std::array<uint32_t, 64> round_constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2};

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t(bytes[0]) << 24 | uint32_t(bytes[1]) << 16 | uint32_t(bytes[2]) << 8 |
         bytes[3];
}

} // namespace

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {
}

void Sha256::block(const uint8_t* data) {
  std::array<uint32_t, 64> w;
  for (int i = 0; i < 16; i++) {
    w[i] = big_endian(data + 4 * i);
  }
  for (int i = 16; i < 64; i++) {
    uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; i++) {
    uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + round_constants[i] + w[i];
    uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const uint32_t next[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; i++) {
    state_[i] += next[i];
  }
}

void Sha256::add(std::string_view bytes) {
  size_t filled = size_ % 64;
  size_ += bytes.size();
  if (filled > 0) {
    size_t now = std::min(bytes.size(), 64 - filled);
    std::copy_n(bytes.begin(), now, tail_.begin() + filled);
    bytes.remove_prefix(now);
    if (filled + now < 64) {
      return;
    }
    block(tail_.data());
  }
  for (; bytes.size() >= 64; bytes.remove_prefix(64)) {
    block(reinterpret_cast<const uint8_t*>(bytes.data()));
  }
  std::copy(bytes.begin(), bytes.end(), tail_.begin());
}

Digest Sha256::digest() {
  const uint64_t bits = size_ * 8;
  std::string padding(size_ % 64 < 56 ? 56 - size_ % 64 : 120 - size_ % 64, '\0');
  padding[0] = '\x80';
  for (int shift = 56; shift >= 0; shift -= 8) {
    padding += char(bits >> shift);
  }
  add(padding);
  Digest result;
  for (int i = 0; i < 32; i++) {
    result[i] = uint8_t(state_[i / 4] >> (24 - 8 * (i % 4)));
  }
  return result;
}

#endif

Digest sha256(std::string_view bytes) {
  Sha256 sum;
  sum.add(bytes);
  return sum.digest();
}

std::string to_hex(const Digest& digest) {
  const char* digits = "0123456789abcdef";
  std::string text;
  for (uint8_t byte : digest) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

Digest from_hex(const std::string& text) {
  Digest digest{};
  for (size_t i = 0; i < digest.size() && 2 * i + 2 <= text.size(); i++) {
    std::from_chars(&text[2 * i], &text[2 * i] + 2, digest[i], 16);
  }
  return digest;
}

} // namespace h2o
