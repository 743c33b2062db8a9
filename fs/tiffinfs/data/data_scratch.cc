// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/data/data_scratch.h"

#include "fs/base/allocate.h"
#include "fs/tiffinfs/objects/data_scratch_pool.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {

DataScratchLease::~DataScratchLease() {
    if (scratch_ != nullptr) {
        pool_->give_back(scratch_);
    }
}

DataScratchPool::~DataScratchPool() {
    while (DataScratch* scratch = kept_.take()) {
        destroy_object(scratch);
    }
}

Result<DataScratchLease> DataScratchPool::take() {
    DataScratch* scratch = kept_.take();
    if (scratch == nullptr) {
        scratch = make_object<DataScratch>();
    }
    if (scratch == nullptr) {
        return Error::enomem;
    }
    return DataScratchLease(*this, scratch);
}

void DataScratchPool::give_back(DataScratch* scratch) {
    if (!kept_.give_back(scratch)) {
        destroy_object(scratch);
    }
}

}  // namespace tiffin::tiffinfs
