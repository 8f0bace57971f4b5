package io.memgate.junit;

/**
 * The name of a test, made from its unique id: the same in every run, whatever its display name.
 *
 * <p>{@code [engine:junit-jupiter]/[class:com.example.ATest]/[nested-class:Inner]/[test-template:scroll(int)]/
 * [test-template-invocation:#2]}, in one line, is {@code scroll(int)[2]} of {@code com.example.ATest$Inner}.
 */
public final class TestName {
    public final String suite;
    public final String test;

    private TestName(String suite, String test) {
        this.suite = suite;
        this.test = test;
    }

    public static TestName of(String uniqueId) {
        StringBuilder suite = new StringBuilder();
        StringBuilder test = new StringBuilder();
        String selecting = "";
        String before = "";
        // Parsed by hand: this runs several times for every test, mostly before it is compiled.
        int end = -1;
        for (int at = 0; at < uniqueId.length(); at = end + 2) {
            end = uniqueId.indexOf("]/[", at);
            if (end < 0) {
                end = uniqueId.length() - (uniqueId.endsWith("]") ? 1 : 0);
            }
            String plain = uniqueId.substring(uniqueId.charAt(at) == '[' ? at + 1 : at, end);
            int colon = plain.indexOf(':');
            String type = colon < 0 ? "" : plain.substring(0, colon);
            String value = decode(plain.substring(colon + 1));
            switch (type) {
                case "engine":
                    break;
                case "suite":
                    selecting = value;
                    break;
                case "class":
                    // jqwik's groups: class:com.example.ATest, class:com.example.ATest$Group
                    suite.setLength(0);
                    suite.append(value);
                    break;
                case "class-template":
                case "runner":
                case "spec":
                    // Kotest and Spock: spec:com.example.ASpec
                    suite.append(value);
                    break;
                case "nested-class":
                case "nested-class-template":
                    suite.append('$').append(value);
                    break;
                case "class-template-invocation":
                case "test-template-invocation":
                case "dynamic-test":
                case "dynamic-container":
                case "iteration":
                    test.append('[').append(value.replace("#", "")).append(']');
                    break;
                case "test":
                    append(test, ofVintage(value, suite.toString(), before));
                    before = value;
                    break;
                default:
                    append(test, value);
            }
        }
        String name = test.toString();
        return new TestName(suite.length() == 0 ? selecting : suite.toString(), name.endsWith("()") ? name.substring(0, name.length() - 2) : name);
    }

    /**
     * Vintage adds the class to a method: {@code test:method(com.example.ATest)}, or below {@code Enclosed} {@code
     * test:com.example.ATest$Inner} and {@code test:method(com.example.ATest$Inner)}.
     */
    private static String ofVintage(String value, String suite, String before) {
        for (String of : new String[] {"(" + suite + ")", "(" + before + ")"}) {
            if (value.endsWith(of)) {
                return value.substring(0, value.length() - of.length());
            }
        }
        return !suite.isEmpty() && value.startsWith(suite + "$") ? value.substring(suite.length() + 1) : value;
    }

    private static void append(StringBuilder to, String value) {
        if (to.length() > 0) {
            to.append('/');
        }
        to.append(value);
    }

    /** Unique ids percent-encode their own separators. */
    private static String decode(String value) {
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '%' && i + 2 < value.length()) {
                int code = Character.digit(value.charAt(i + 1), 16) * 16 + Character.digit(value.charAt(i + 2), 16);
                if (code > 0) {
                    out.append((char) code);
                    i += 2;
                    continue;
                }
            }
            out.append(c == '+' ? ' ' : c);
        }
        return out.toString();
    }
}
