#include "kernels.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>

namespace h2o::host {

namespace {

std::map<std::string, Kernel>& registry() {
  static std::map<std::string, Kernel> kernels;
  return kernels;
}

std::vector<Library>& libraries() {
  static std::vector<Library> all;
  return all;
}

/// How many characters to insert, remove or replace to make one from the other.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row.back();
}

} // namespace

void add_kernel(const Kernel& kernel) {
  registry().emplace(kernel.name, kernel);
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const auto& [name, kernel] : registry()) {
    names.push_back(name);
  }
  return names;
}

void add_library(const Library& library) {
  libraries().push_back(library);
}

const Library& find_library(const std::string& text) {
  const std::string instance = "template [[host_name(";
  const size_t first = text.rfind(instance);
  if (first == std::string::npos) {
    throw std::invalid_argument("A library without an instance is compiled.");
  }
  for (const auto& library : libraries()) {
    const std::string known = library.text;
    if (known.compare(0, first + instance.size(), text, 0, first + instance.size()) == 0 &&
        known.find(text.substr(first), first) != std::string::npos) {
      return library;
    }
  }
  throw std::invalid_argument(
      "No kernel here was made of the text with " + text.substr(first));
}

const Kernel& find_kernel(const std::string& name) {
  if (auto found = registry().find(name); found != registry().end()) {
    return found->second;
  }
  std::string message = "There is no kernel " + name + ".";
  const std::string* nearest = nullptr;
  size_t least = 0;
  for (const auto& [other, kernel] : registry()) {
    size_t distance = edit_distance(name, other);
    if (nearest == nullptr || distance < least) {
      nearest = &other;
      least = distance;
    }
  }
  throw std::invalid_argument(
      nearest == nullptr ? message : message + " The nearest is " + *nearest + ".");
}

} // namespace h2o::host
