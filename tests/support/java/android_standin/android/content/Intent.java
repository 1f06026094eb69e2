package android.content;

/** Stand-in. */
public class Intent {
    public int[] getIntArrayExtra(String name) {
        return null;
    }

    public int getIntExtra(String name, int otherwise) {
        return otherwise;
    }

    public long getLongExtra(String name, long otherwise) {
        return otherwise;
    }

    public float getFloatExtra(String name, float otherwise) {
        return otherwise;
    }
}
