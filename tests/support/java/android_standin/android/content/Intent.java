package android.content;

/** Stand-in. */
public class Intent {
    public int[] getIntArrayExtra(String name) {
        return null;
    }

    public int getIntExtra(String name, int otherwise) {
        return otherwise;
    }
}
