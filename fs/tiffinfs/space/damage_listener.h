// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How the parts of a volume that read its metadata tell it that some is damaged. Each has logged what
// is wrong, and where.
#pragma once

namespace tiffin::tiffinfs {

// Called from any thread, with any lock of tiffinfs held but a leaf.
class DamageListener {
  public:
    // The operation that met it fails.
    virtual void damage_met() = 0;
    // It can be worked around until fsck.tiffin repairs it.
    virtual void damage_avoided() = 0;

  protected:
    ~DamageListener() = default;
};

}  // namespace tiffin::tiffinfs
