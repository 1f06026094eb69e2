package android.view;

/** Stand-in. */
public class View {}
