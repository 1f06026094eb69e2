package org.etcli.runner;

import java.nio.charset.StandardCharsets;

/** What a runner met. The message says it in words, {@link #code()} in one stable word. */
public final class RunnerException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final String code;

    RunnerException(String code, byte[] message) {
        super(new String(message, StandardCharsets.UTF_8));
        this.code = code;
    }

    /** A stable code such as {@code runner.file}, {@code runner.prompt}, {@code runner.busy} or {@code runner.stopped}. */
    public String code() {
        return code;
    }
}
