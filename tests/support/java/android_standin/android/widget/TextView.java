package android.widget;

import android.content.Context;
import android.view.View;

/** Stand-in. */
public class TextView extends View {
    public TextView(Context context) {}

    public void setTextIsSelectable(boolean selectable) {}

    public final void append(CharSequence words) {}
}
