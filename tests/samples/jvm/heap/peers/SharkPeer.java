import java.io.File;
import shark.AndroidMetadataExtractor;
import shark.AndroidObjectInspectors;
import shark.AndroidReferenceMatchers;
import shark.FilteringLeakingObjectFinder;
import shark.HeapAnalyzer;
import shark.OnAnalysisProgressListener;

/** Runs LeakCanary's analysis of a dump, as its shark-cli does. */
public class SharkPeer {
    public static void main(String[] arguments) {
        HeapAnalyzer analyzer = new HeapAnalyzer(OnAnalysisProgressListener.Companion.getNO_OP());
        System.out.println(
            analyzer.analyze(
                new File(arguments[0]),
                new FilteringLeakingObjectFinder(AndroidObjectInspectors.Companion.getAppLeakingObjectFilters()),
                AndroidReferenceMatchers.Companion.getAppDefaults(),
                true,
                AndroidObjectInspectors.Companion.getAppDefaults(),
                AndroidMetadataExtractor.INSTANCE,
                null));
    }
}
