# ndk-build: LOCAL_STATIC_LIBRARIES += memgate_shadow in your module; its flags are exported.
LOCAL_PATH := $(call my-dir)
include $(CLEAR_VARS)
LOCAL_MODULE := memgate_shadow
LOCAL_SRC_FILES := memgate_shadow.c
LOCAL_CFLAGS := -O2 -fno-omit-frame-pointer -Wno-frame-address -DMEMGATE_SHADOW_WRAPS
LOCAL_EXPORT_C_INCLUDES := $(LOCAL_PATH)
LOCAL_EXPORT_CFLAGS := -finstrument-functions -fno-omit-frame-pointer
LOCAL_EXPORT_LDFLAGS := -Wl,--wrap=longjmp -Wl,--wrap=siglongjmp -Wl,--wrap=_longjmp
include $(BUILD_STATIC_LIBRARY)
