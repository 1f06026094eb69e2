package org.etcli.runner;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * A Llama model that etcli exported, from token ids to token ids. Texts become ids and ids become texts in the app.
 *
 * <pre>{@code
 * try (Runner runner = Runner.load(folder + "/bundle/runner.cfg", 4)) {
 *     runner.prefill(promptIds);
 *     runner.decode(128, (id, index) -> { show(id); return true; });
 * }
 * }</pre>
 *
 * <p>Calls take long: keep them off the main thread. One call at a time: another one meanwhile throws a {@link RunnerException} with the
 * code {@code runner.busy}, but for {@link #stop()} and {@link #close()}, which any thread may call at any time.
 */
public final class Runner implements AutoCloseable {
    static {
        System.loadLibrary("etcli_runner_jni");
    }

    /** Gets the tokens of {@link #decode} as they are known, on the thread that called it. */
    public interface TokenListener {
        /**
         * One new token.
         *
         * @param id the token
         * @param index from 0 since the last prompt
         * @return whether to go on; what is thrown here ends decoding as well and comes out of {@link #decode}
         */
        boolean onToken(int id, long index);
    }

    /** Why {@link #decode} ended. In the order of {@code etcli_runner_reason}. */
    public enum Reason {
        /** The last token is one of the model's stop ids. */
        STOP_ID,
        /** As many tokens as were asked for; the next call goes on behind them. */
        MAX_NEW_TOKENS,
        /** The conversation has filled the caches. */
        CACHE_FULL,
        /** {@link #stop()} or the listener ended it; the next call goes on behind the last token. */
        STOPPED
    }

    /**
     * How {@link #decode} chooses tokens, and how many at the most. As it comes: greedily, 64.
     *
     * <p>What is out of range is told by {@link #decode}, as a {@link RunnerException} with the code {@code runner.usage}.
     */
    public static final class DecodeOptions {
        private int maxNewTokens = 64;
        private boolean ignoreStopIds;
        private double temperature;
        private double topP = 1;
        private long seed;

        /** At least 1; a stop id counts. */
        public DecodeOptions maxNewTokens(int tokens) {
            maxNewTokens = tokens;
            return this;
        }

        /** Whether to go on behind stop ids. */
        public DecodeOptions ignoreStopIds(boolean ignore) {
            ignoreStopIds = ignore;
            return this;
        }

        /** From 0, the likeliest token each time whatever the others say, to 1000. */
        public DecodeOptions temperature(double value) {
            temperature = value;
            return this;
        }

        /** From 0 to 1: tokens are drawn among the fewest likeliest that have so much of the probability together. */
        public DecodeOptions topP(double value) {
            topP = value;
            return this;
        }

        /** Any number. The same seed, options and calls since the conversation began give the same tokens, as {@code etcli run --seed} does. */
        public DecodeOptions seed(long value) {
            seed = value;
            return this;
        }
    }

    /** Numbers of a model and its conversation. */
    public static final class Info {
        /** Ids are below it. */
        public final int vocabulary;
        /** Tokens that a conversation can have. */
        public final int context;
        /** How many of them are free. */
        public final int room;
        /** Threads of the process's CPU backends. */
        public final int threads;

        private Info(int[] values) {
            vocabulary = values[0];
            context = values[1];
            room = values[2];
            threads = values[3];
        }
    }

    /** Counts and seconds of the last prompt and what came of it. */
    public static final class Stats {
        public final long promptTokens;
        public final long newTokens;
        /** Calls of one token: N tokens after a prompt take N - 1. */
        public final long decodeSteps;
        public final double loadSeconds;
        /** Of the prompt's calls: the first new token is chosen behind them. */
        public final double prefillSeconds;
        public final double decodeSeconds;

        private Stats(double[] values) {
            promptTokens = (long) values[0];
            newTokens = (long) values[1];
            decodeSteps = (long) values[2];
            loadSeconds = values[3];
            prefillSeconds = values[4];
            decodeSeconds = values[5];
        }
    }

    private final Object gate = new Object();
    private long handle; // 0 once closed
    private final List<Thread> callers = new ArrayList<>(); // threads in native code

    private Runner(long handle) {
        this.handle = handle;
    }

    /**
     * Loads a model with the runtime's own number of threads.
     *
     * @param config path of a bundle's {@code runner.cfg}
     */
    public static Runner load(String config) {
        return load(config, 0);
    }

    /**
     * Loads and checks a model; seconds for a large one.
     *
     * @param config path of a bundle's {@code runner.cfg}
     * @param threads of the CPU backends, for the whole process; 0 leaves them as they are
     * @throws RunnerException with the reason: {@code runner.file}, {@code runner.config}, {@code runner.tensor}...
     */
    public static Runner load(String config, int threads) {
        if (config.indexOf('\0') >= 0) {
            throw new IllegalArgumentException("a path holds no NUL");
        }
        return new Runner(nativeLoad((config + '\0').getBytes(StandardCharsets.UTF_8), threads, false));
    }

    /** The releases of etcli and ExecuTorch that the library was built from. */
    public static String version() {
        return nativeVersion();
    }

    /**
     * Runs the conversation's next ids: the first prompt, or what follows. What was decoded is part of it already.
     *
     * @throws RunnerException {@code runner.prompt}: the ids do not fit, nothing is forgotten; {@code runner.stopped}, by {@link #stop()}, and
     *     anything else: the conversation is forgotten
     */
    public void prefill(int[] ids) {
        if (ids == null) {
            throw new NullPointerException("ids");
        }
        long runner = enter();
        try {
            nativePrefill(runner, ids);
        } finally {
            leave();
        }
    }

    /**
     * Decodes greedily up to a stop id, the bound or the last place of the caches.
     *
     * @param maxNewTokens at least 1; a stop id counts
     * @param listener gets each token; may be null
     */
    public Reason decode(int maxNewTokens, TokenListener listener) {
        return decode(maxNewTokens, false, listener);
    }

    /** As {@link #decode(int, TokenListener)}; {@code ignoreStopIds} goes on behind stop ids. */
    public Reason decode(int maxNewTokens, boolean ignoreStopIds, TokenListener listener) {
        return decode(new DecodeOptions().maxNewTokens(maxNewTokens).ignoreStopIds(ignoreStopIds), listener);
    }

    /**
     * Decodes up to a stop id, the bound or the last place of the caches. Each call has options of its own, for the first token behind a
     * prompt too.
     *
     * @param listener gets each token; may be null
     * @throws RunnerException {@code runner.usage}: an option is out of range, nothing is forgotten
     */
    public Reason decode(DecodeOptions options, TokenListener listener) {
        if (options == null) {
            throw new NullPointerException("options");
        }
        long runner = enter();
        try {
            int reason = nativeDecode(runner, options.maxNewTokens, options.ignoreStopIds, options.temperature, options.topP, options.seed, listener);
            return Reason.values()[reason - 1];
        } finally {
            leave();
        }
    }

    /** Ends the running {@link #prefill} or {@link #decode} before its next call of the model. */
    public void stop() {
        synchronized (gate) {
            if (handle != 0) {
                nativeStop(handle);
            }
        }
    }

    /** Forgets the conversation. */
    public void reset() {
        long runner = enter();
        try {
            nativeReset(runner);
        } finally {
            leave();
        }
    }

    public Info info() {
        long runner = enter();
        try {
            return new Info(nativeInfo(runner));
        } finally {
            leave();
        }
    }

    public Stats stats() {
        long runner = enter();
        try {
            return new Stats(nativeStats(runner));
        } finally {
            leave();
        }
    }

    /**
     * Ends the running call, waits for it and gives the model's memory back. Closing again does nothing.
     *
     * @throws IllegalStateException inside a listener of this runner: let the listener return false and close behind {@link #decode}
     */
    @Override
    public void close() {
        boolean interrupted = false;
        long runner;
        synchronized (gate) {
            if (handle == 0) {
                return;
            }
            if (callers.contains(Thread.currentThread())) {
                throw new IllegalStateException("close() inside a listener: return false, and close behind decode()");
            }
            runner = handle;
            handle = 0;
            while (!callers.isEmpty()) {
                nativeStop(runner); // again for a call that was on its way in
                try {
                    gate.wait(50);
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        }
        nativeFree(runner);
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** The handle, which stays whole until {@link #leave()}. */
    private long enter() {
        synchronized (gate) {
            if (handle == 0) {
                throw new IllegalStateException("this runner is closed");
            }
            callers.add(Thread.currentThread());
            return handle;
        }
    }

    private void leave() {
        synchronized (gate) {
            callers.remove(Thread.currentThread());
            gate.notifyAll();
        }
    }

    private static native long nativeLoad(byte[] config, int threads, boolean verbose);

    private static native void nativeFree(long runner);

    private static native void nativeReset(long runner);

    private static native void nativeStop(long runner);

    private static native void nativePrefill(long runner, int[] ids);

    private static native int nativeDecode(
            long runner, int maxNewTokens, boolean ignoreStopIds, double temperature, double topP, long seed, TokenListener listener);

    private static native int[] nativeInfo(long runner);

    private static native double[] nativeStats(long runner);

    private static native String nativeVersion();
}
