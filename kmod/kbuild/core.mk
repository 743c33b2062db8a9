# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Builds the core and the kernel host with Kbuild. The Kbuild file of a module, at the root of the tree
# that M= names, includes this and says which sources of its own it has:
#
#   include $(src)/kmod/kbuild/core.mk
#   obj-m := NAME.o
#   tiffin-cxx-objects += own.o
#   NAME-y := tiffin_cxx.o $(tiffin-c-objects) own_shim.o
#
# C++ beside C: .cc files are compiled with the kernel's own flags but for those that only C has. They see
# no header of the kernel.

# ---- What is compiled: by folder, so that a new file needs no change here ----

# $(call tiffin-objects,FOLDER...,SUFFIX): the objects of all sources below the folders.
tiffin-objects = $(patsubst %$(2),%.o,$(sort $(shell cd $(src) && find $(1) -name '*$(2)')))
# $(call tiffin-folder-objects,FOLDER...): an object for each folder with C++ at or below these, from a file that includes all of
# its files: most of the time goes into headers that they share.
tiffin-folder-objects = $(shell cd $(src) && mkdir -p folders && \
	for folder in $$(find $(1) -name '*.cc' -printf '%h\n' | sort -u); do \
		name=folders/$$(echo $$folder | tr / _); \
		for file in $$folder/*.cc; do echo "$(pound)include \"$$file\""; done >$$name.new; \
		if cmp -s $$name.new $$name.cc; then rm $$name.new; else mv $$name.new $$name.cc; fi; \
		echo $$name.o; \
	done)
# A module that wants another part of fs/ says so before.
tiffin-cores ?= fs/vfs fs/base fs/tiffinfs
tiffin-cxx-objects := $(call tiffin-folder-objects,$(tiffin-cores) kmod/host)
tiffin-c-objects := $(call tiffin-objects,kmod/host,.c)

# ---- For C and C++ ----

ccflags-y += -I$(src)
# Kernel stacks are small: the whole depth of the core has to stay under 8 KiB.
ccflags-y += -Wframe-larger-than=1024 -Werror

# What tests break on purpose: kmod/build --planted-faults.
ccflags-$(if $(TIFFIN_PLANTED_FAULTS),y) += -DTIFFIN_PLANTED_FAULTS

# Locks that the kernel debugs are larger than fs/vfs/host.h foresees.
ifneq ($(CONFIG_DEBUG_LOCK_ALLOC)$(CONFIG_DEBUG_MUTEXES)$(CONFIG_PREEMPT_RT),)
ccflags-y += -DTIFFIN_LOCK_STORAGE_BYTES=256
endif

# ---- For C++ ----

# The compiler of the same name and version as Kbuild's own: objects of one module must not mix them.
TIFFIN_CXX ?= $(subst gcc,g++,$(CC))

# Only C has these, or they are given anew below.
tiffin-c-only := -std=% -fshort-wchar -Wframe-larger-than=% \
	-Wno-pointer-sign -Wno-override-init -Wdeclaration-after-statement -Wstrict-prototypes -Wmissing-prototypes -Wmissing-declarations \
	-Wold-style-definition -Wimplicit-function-declaration -Wimplicit-int \
	-Werror=strict-prototypes -Werror=implicit-function-declaration -Werror=implicit-int \
	-Werror=designated-init -Werror=incompatible-pointer-types
# Function tracing records the place of every function, also of those that the linker then drops because
# another object has the same inline function: that does not link.
tiffin-tracing := -pg -mrecord-mcount -mfentry -DCC_USING_FENTRY $(CC_FLAGS_FTRACE)

tiffin-cxxflags = $(filter-out $(tiffin-c-only) $(tiffin-tracing),$(KBUILD_CFLAGS)) \
	$(KBUILD_CFLAGS_MODULE) -std=gnu++20 -ffreestanding -fno-exceptions -fno-rtti \
	-fno-threadsafe-statics -fcheck-new -Wall -Wextra -Wshadow $(ccflags-y) -O2

# A kernel that counts calls (CONFIG_CALL_PADDING: Debian's Linux 6.12) has room before each function, which has to stay. The
# compiler lists these functions, too, also those that the linker then drops. Only function tracing would read that list.
tiffin-drop-list = $(if $(filter -fpatchable-function-entry=%,$(tiffin-cxxflags)),&& $(OBJCOPY) \
	--remove-section=__patchable_function_entries $@)

quiet_cmd_cxx_o_cc = CXX [M] $@
      cmd_cxx_o_cc = $(TIFFIN_CXX) -Wp,-MMD,$(depfile) $(tiffin-cxxflags) -c -o $@ $< $(tiffin-drop-list)

$(obj)/%.o: $(src)/%.cc FORCE
	$(call if_changed_dep,cxx_o_cc)

# All C++ becomes one object before objtool looks at it (Kbuild's own arguments, so that the object has
# what the kernel needs for unwinding and against speculation). One file at a time would not do: objtool
# finds functions that do not return, such as host::panic(), only among those it can see.
tiffin-cxx-paths = $(addprefix $(obj)/,$(tiffin-cxx-objects))
$(obj)/tiffin_cxx.o: objtool-args-y += --link

quiet_cmd_ld_cxx = LD [M]  $@
      cmd_ld_cxx = $(LD) $(ld_flags) -r -o $@ $(tiffin-cxx-paths) $(cmd_objtool)

# Expanded a second time when the whole Kbuild file has been read.
.SECONDEXPANSION:
$(obj)/tiffin_cxx.o: $$(tiffin-cxx-paths) FORCE
	$(call if_changed,ld_cxx)

targets += $(tiffin-cxx-objects)
