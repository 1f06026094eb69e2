plugins {
    id("com.android.application")
}

// The folder `library/` of an etcli build: jniLibs/<abi>/, java/, include/ and rules for R8.
val etcliLibrary = rootProject.file(providers.gradleProperty("etcli.library").get())
require(File(etcliLibrary, "jniLibs/arm64-v8a/libetcli_runner_jni.so").isFile) {
    "There is no library for apps in $etcliLibrary: run `etcli build --target android --library`, and say where in gradle.properties (etcli.library)."
}

android {
    namespace = "com.example.etcli"
    compileSdk = 35

    defaultConfig {
        applicationId = "com.example.etcli"
        minSdk = 26 // `api_level` in the build's manifest.json, or more
        targetSdk = 35
        versionCode = 1
        versionName = "1.0"
        ndk { abiFilters += "arm64-v8a" }
    }

    sourceSets["main"].jniLibs.srcDir(File(etcliLibrary, "jniLibs"))
    sourceSets["main"].java.srcDir(File(etcliLibrary, "java"))

    buildTypes {
        release {
            isMinifyEnabled = true
            proguardFiles(getDefaultProguardFile("proguard-android-optimize.txt"), File(etcliLibrary, "consumer-rules.pro"))
            signingConfig = signingConfigs.getByName("debug") // so that it can be tried; an app has its own key
        }
    }
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_1_8
        targetCompatibility = JavaVersion.VERSION_1_8
    }
}
