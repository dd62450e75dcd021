/*
 * What Ollama's build needs of miniaudio.h, for a build that decodes no audio.
 *
 * Ollama keeps that header in a folder named vendor/, which the zip of a Go
 * module never contains. Only tools/mtmd/mtmd-helper.cpp includes it, to decode
 * audio input; here the first call fails, so that such input is refused.
 */
#pragma once

typedef int ma_result;
typedef unsigned long long ma_uint64;

enum { MA_SUCCESS = 0, MA_NOT_IMPLEMENTED = -29 };
enum { ma_format_f32 = 5 };

struct ma_decoder {};
struct ma_decoder_config {};

static inline ma_decoder_config ma_decoder_config_init(int, unsigned, unsigned) {
	return {};
}

static inline ma_result ma_decoder_init_memory(const void *, unsigned long, const ma_decoder_config *, ma_decoder *) {
	return MA_NOT_IMPLEMENTED;
}

static inline ma_result ma_decoder_get_length_in_pcm_frames(ma_decoder *, ma_uint64 *) {
	return MA_NOT_IMPLEMENTED;
}

static inline ma_result ma_decoder_read_pcm_frames(ma_decoder *, void *, ma_uint64, ma_uint64 *) {
	return MA_NOT_IMPLEMENTED;
}

static inline ma_result ma_decoder_uninit(ma_decoder *) {
	return MA_SUCCESS;
}
