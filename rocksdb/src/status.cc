#include "status.h"

#include <cerrno>

namespace rocksdb_polder {

IOStatus Failed(const std::string& context, const std::string& path, ssize_t error) {
  const std::string where = path.empty() ? context : context + ": " + path;
  const std::string why = polder_message();
  switch (-error) {
    case ENOENT:
      return IOStatus::PathNotFound(where, why);
    case ENOSPC: {
      // Polder has collected all garbage before it says so. The write can succeed after files were deleted.
      IOStatus status = IOStatus::NoSpace(where, why);
      status.SetRetryable(true);
      status.SetScope(IOStatus::IOErrorScope::kIOErrorScopeFileSystem);
      return status;
    }
    case EBUSY:
      return IOStatus::Busy(where, why);
    case EUCLEAN:
      return IOStatus::Corruption(where, why);
    case EOPNOTSUPP:
      return IOStatus::NotSupported(where, why);
    default:
      return IOStatus::IOError(where, why);
  }
}

}  // namespace rocksdb_polder
