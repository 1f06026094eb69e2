package android.app;

import android.content.Context;
import android.content.Intent;
import android.os.Bundle;
import android.view.View;

/** Stand-in: what the example calls of Android, so that a compiler without an SDK can check it. Nothing here does anything. */
public class Activity extends Context {
    protected void onCreate(Bundle state) {}

    protected void onNewIntent(Intent intent) {}

    protected void onDestroy() {}

    public Intent getIntent() {
        return new Intent();
    }

    public void setContentView(View view) {}

    public final void runOnUiThread(Runnable action) {}
}
