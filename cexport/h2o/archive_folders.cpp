#include "archive_folders.h"

#include <algorithm>
#include <cerrno>

#include "posix_files.h"
#include "segment_file.h"

namespace h2o {

namespace {

void check_removal(int error, const std::string& path) {
  if (error != 0 && error != ENOTEMPTY && error != EEXIST) {
    throw ArchiveError({archive_codes::unusable, path, error});
  }
}

std::vector<std::string> names_of(const std::string& folder) {
  std::vector<std::string> names;
  int error = posix::names_in(folder, names);
  check_removal(error == ENOENT || error == ENOTDIR ? 0 : error, folder);
  return names;
}

bool is_layer(const std::string& name) {
  const std::string digits =
      name.substr(std::min(name.size(), std::string("layer-").size()));
  return name.starts_with("layer-") && digits.size() >= 3 && digits.size() <= 9 &&
         digits.find_first_not_of("0123456789") == std::string::npos;
}

bool is_ours(const std::string& name) {
  const std::string kept = name.ends_with(".new") ? name.substr(0, name.size() - 4) : name;
  return kept == "manifest" || serial_of(kept) >= 0;
}

std::vector<std::string> layers_of(const std::string& folder) {
  std::vector<std::string> layers;
  for (const std::string& name : names_of(folder)) {
    // What a link leads to is not the archive's to remove.
    if (is_layer(name) && posix::check_own_folder(folder + "/" + name) == 0) {
      layers.push_back(folder + "/" + name);
    }
  }
  return layers;
}

void delete_layer(const std::string& layer) {
  for (const std::string& name : names_of(layer)) {
    if (is_ours(name)) {
      const std::string path = layer + "/" + name;
      check_removal(posix::remove_file(path), path);
    }
  }
  check_removal(posix::remove_file(layer + "/lock"), layer + "/lock");
  check_removal(posix::remove_folder(layer), layer);
}

} // namespace

std::string layer_folder(const std::string& folder, int layer) {
  std::string digits = std::to_string(layer);
  return folder + "/layer-" + std::string(digits.size() < 3 ? 3 - digits.size() : 0, '0') +
         digits;
}

void delete_archive(const std::string& folder) {
  const std::vector<std::string> layers = layers_of(folder);
  std::vector<posix::File> locks(layers.size());
  for (size_t i = 0; i < layers.size(); i++) {
    if (int error = posix::lock(layers[i] + "/lock", locks[i]); error != 0) {
      refuse_lock(layers[i], error);
    }
  }
  for (const std::string& layer : layers) {
    delete_layer(layer);
  }
  if (!layers.empty()) {
    check_removal(posix::remove_folder(folder), folder);
  }
}

std::vector<std::string> delete_stale_archives(
    const std::string& root, const std::vector<std::string>& keep) {
  std::vector<std::string> deleted;
  for (const std::string& name : names_of(root)) {
    const std::string folder = root + "/" + name;
    if (std::find(keep.begin(), keep.end(), name) != keep.end() ||
        posix::check_own_folder(folder) != 0 || layers_of(folder).empty()) {
      continue;
    }
    try {
      delete_archive(folder);
      deleted.push_back(name);
    } catch (const ArchiveError& error) {
      if (error.failure.code != archive_codes::locked) {
        throw;
      }
    }
  }
  return deleted;
}

} // namespace h2o
