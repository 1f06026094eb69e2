// org.etcli.runner.Runner: each native method is one function of the C interface, a status that is not OK an exception. Nothing of the C++
// library is used here, so that the binding needs none.
#include <jni.h>

#include "etcli_runner.h"

namespace {

constexpr const char* kRunner = "org/etcli/runner/Runner";

jclass exception_class = nullptr;  // org.etcli.runner.RunnerException, (String code, String message)
jmethodID exception_constructor = nullptr;
jmethodID on_token_method = nullptr;  // Runner.TokenListener.onToken(int, long)

etcli_runner* runner_of(jlong handle) { return reinterpret_cast<etcli_runner*>(handle); }

void throw_last_error(JNIEnv* env) {
  jstring code = env->NewStringUTF(etcli_runner_last_code());
  // As bytes, since messages hold names of files, which may be anything, and NewStringUTF takes its own encoding only.
  const char* words = etcli_runner_last_error();
  jsize length = 0;
  while (words[length] != 0) ++length;
  jbyteArray bytes = code == nullptr ? nullptr : env->NewByteArray(length);
  if (bytes == nullptr) return;  // out of memory, which is pending
  env->SetByteArrayRegion(bytes, 0, length, reinterpret_cast<const jbyte*>(words));
  jobject exception = env->NewObject(exception_class, exception_constructor, code, bytes);
  if (exception != nullptr) env->Throw(static_cast<jthrowable>(exception));
}

// Whether it went well; otherwise an exception is pending.
bool went_well(JNIEnv* env, etcli_runner_status status) {
  if (status == ETCLI_RUNNER_OK) return true;
  throw_last_error(env);
  return false;
}

// `config` is UTF-8 with a NUL behind it: what JNI itself makes of a String is another encoding.
jlong load(JNIEnv* env, jclass, jbyteArray config, jint threads, jboolean verbose) {
  jbyte* path = env->GetByteArrayElements(config, nullptr);
  if (path == nullptr) return 0;
  etcli_runner_load_options options = ETCLI_RUNNER_LOAD_OPTIONS_INIT;
  options.threads = threads;
  options.verbose = verbose;
  etcli_runner* runner = nullptr;
  const etcli_runner_status status = etcli_runner_load(reinterpret_cast<const char*>(path), &options, &runner);
  env->ReleaseByteArrayElements(config, path, JNI_ABORT);
  went_well(env, status);
  return reinterpret_cast<jlong>(runner);
}

void release(JNIEnv* env, jclass, jlong handle) { went_well(env, etcli_runner_free(runner_of(handle))); }

void reset(JNIEnv* env, jclass, jlong handle) { went_well(env, etcli_runner_reset(runner_of(handle))); }

void stop(JNIEnv*, jclass, jlong handle) { etcli_runner_stop(runner_of(handle)); }

void prefill(JNIEnv* env, jclass, jlong handle, jintArray ids) {
  static_assert(sizeof(jint) == sizeof(int32_t), "ids are passed as they are");
  const jsize count = env->GetArrayLength(ids);
  jint* values = env->GetIntArrayElements(ids, nullptr);
  if (values == nullptr) return;
  const etcli_runner_status status = etcli_runner_prefill(runner_of(handle), values, static_cast<size_t>(count));
  env->ReleaseIntArrayElements(ids, values, JNI_ABORT);
  went_well(env, status);
}

struct Listener {
  JNIEnv* env;
  jobject object;
};

int32_t tell(void* user, int32_t id, int64_t index) {
  const Listener& listener = *static_cast<Listener*>(user);
  const jboolean goes_on = listener.env->CallBooleanMethod(listener.object, on_token_method, static_cast<jint>(id), static_cast<jlong>(index));
  // What the listener throws comes out of decode().
  return listener.env->ExceptionCheck() || !goes_on;
}

jint decode(JNIEnv* env, jclass, jlong handle, jint max_new_tokens, jboolean ignore_stop_ids, jdouble temperature, jdouble top_p, jlong seed,
            jobject object) {
  etcli_runner_decode_options options = ETCLI_RUNNER_DECODE_OPTIONS_INIT;
  options.max_new_tokens = max_new_tokens;
  options.ignore_stop_ids = ignore_stop_ids;
  options.temperature = temperature;
  options.top_p = top_p;
  options.seed = static_cast<uint64_t>(seed);
  Listener listener{env, object};
  etcli_runner_reason reason = ETCLI_RUNNER_NO_REASON;
  const etcli_runner_status status = etcli_runner_decode(runner_of(handle), &options, object == nullptr ? nullptr : tell, &listener, &reason);
  if (!env->ExceptionCheck()) went_well(env, status);
  return reason;
}

// {vocabulary, context, room, threads}
jintArray info(JNIEnv* env, jclass, jlong handle) {
  etcli_runner_info info = ETCLI_RUNNER_INFO_INIT;
  if (!went_well(env, etcli_runner_get_info(runner_of(handle), &info))) return nullptr;
  const jint values[] = {info.vocabulary, info.context, info.room, info.threads};
  jintArray out = env->NewIntArray(4);
  if (out != nullptr) env->SetIntArrayRegion(out, 0, 4, values);
  return out;
}

// {prompt tokens, new tokens, decode steps, load seconds, prefill seconds, decode seconds}
jdoubleArray stats(JNIEnv* env, jclass, jlong handle) {
  etcli_runner_stats stats = ETCLI_RUNNER_STATS_INIT;
  if (!went_well(env, etcli_runner_get_stats(runner_of(handle), &stats))) return nullptr;
  const jdouble values[] = {static_cast<jdouble>(stats.prompt_tokens), static_cast<jdouble>(stats.new_tokens),
                            static_cast<jdouble>(stats.decode_steps), stats.load_s, stats.prefill_s, stats.decode_s};
  jdoubleArray out = env->NewDoubleArray(6);
  if (out != nullptr) env->SetDoubleArrayRegion(out, 0, 6, values);
  return out;
}

jstring version(JNIEnv* env, jclass) { return env->NewStringUTF(etcli_runner_version()); }

template <class Function>
JNINativeMethod method(const char* name, const char* signature, Function* function) {
  return {const_cast<char*>(name), const_cast<char*>(signature), reinterpret_cast<void*>(function)};
}

bool find_java(JNIEnv* env) {
  jclass exception = env->FindClass("org/etcli/runner/RunnerException");
  if (exception == nullptr) return false;
  exception_class = static_cast<jclass>(env->NewGlobalRef(exception));
  exception_constructor = env->GetMethodID(exception, "<init>", "(Ljava/lang/String;[B)V");
  jclass listener = exception_constructor == nullptr ? nullptr : env->FindClass("org/etcli/runner/Runner$TokenListener");
  if (listener == nullptr) return false;
  on_token_method = env->GetMethodID(listener, "onToken", "(IJ)Z");
  return on_token_method != nullptr;
}

}  // namespace

extern "C" JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM* machine, void*) {
  void* got = nullptr;
  if (machine->GetEnv(&got, JNI_VERSION_1_6) != JNI_OK) return JNI_ERR;
  JNIEnv* env = static_cast<JNIEnv*>(got);
  if (etcli_runner_api() < ETCLI_RUNNER_API) {
    jclass error = env->FindClass("java/lang/UnsatisfiedLinkError");
    if (error != nullptr) env->ThrowNew(error, "libetcli_runner.so is older than libetcli_runner_jni.so: take both from one build");
    return JNI_ERR;
  }
  if (!find_java(env)) return JNI_ERR;  // what was not found is pending
  const JNINativeMethod methods[] = {
      method("nativeLoad", "([BIZ)J", load),
      method("nativeFree", "(J)V", release),
      method("nativeReset", "(J)V", reset),
      method("nativeStop", "(J)V", stop),
      method("nativePrefill", "(J[I)V", prefill),
      method("nativeDecode", "(JIZDDJLorg/etcli/runner/Runner$TokenListener;)I", decode),
      method("nativeInfo", "(J)[I", info),
      method("nativeStats", "(J)[D", stats),
      method("nativeVersion", "()Ljava/lang/String;", version),
  };
  jclass runner = env->FindClass(kRunner);
  if (runner == nullptr || env->RegisterNatives(runner, methods, sizeof methods / sizeof methods[0]) != JNI_OK) return JNI_ERR;
  return JNI_VERSION_1_6;
}
