package android.content;

import java.io.File;

/** Stand-in. */
public abstract class Context {
    public File getFilesDir() {
        return new File(".");
    }
}
