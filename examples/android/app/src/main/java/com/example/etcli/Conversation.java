package com.example.etcli;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

import org.etcli.runner.Runner;

/** A model on a thread of its own: loading and decoding take long, and a runner takes one call at a time. */
final class Conversation implements AutoCloseable {
    /** Called on the conversation's own thread. */
    interface Listener {
        void onToken(int id);

        void onEnd(String summary);

        void onFailure(String message);
    }

    private final ExecutorService worker = Executors.newSingleThreadExecutor();
    private final String config;
    private volatile Runner runner;
    private volatile boolean closed;

    /** {@code config} is the path of a bundle's runner.cfg. Nothing is loaded before the first prompt. */
    Conversation(String config) {
        this.config = config;
    }

    /** Says {@code ids} to the model, behind everything that was said before, and gives its answer to {@code listener}. */
    void say(int[] ids, Runner.DecodeOptions options, Listener listener) {
        worker.execute(() -> answer(ids, options, listener));
    }

    /** Ends the answer; the conversation goes on with the next prompt. */
    void stop() {
        Runner current = runner;
        if (current != null) {
            current.stop();
        }
    }

    /** Ends the answer and gives the model's memory back. */
    @Override
    public void close() {
        closed = true;
        stop();
        worker.execute(() -> {
            if (runner != null) {
                runner.close();
            }
        });
        worker.shutdown();
    }

    private void answer(int[] ids, Runner.DecodeOptions options, Listener listener) {
        try {
            if (closed) {
                return;
            }
            if (runner == null) {
                runner = Runner.load(config, Math.max(1, Runtime.getRuntime().availableProcessors() / 2));
            }
            if (runner.info().room <= ids.length) {
                runner.reset(); // the oldest turns do not fit any more: this one begins anew
            }
            runner.prefill(ids);
            Runner.Reason reason = runner.decode(options, (id, index) -> {
                listener.onToken(id);
                return !closed;
            });
            Runner.Stats stats = runner.stats();
            listener.onEnd(reason + ": " + stats.newTokens + " tokens, " + rate(stats.decodeSteps, stats.decodeSeconds) + " tokens/s");
        } catch (RuntimeException e) { // RunnerException says what and why
            listener.onFailure(String.valueOf(e.getMessage()));
        }
    }

    private static String rate(long count, double seconds) {
        return seconds > 0 ? String.valueOf(Math.round(10 * count / seconds) / 10.0) : "no";
    }
}
