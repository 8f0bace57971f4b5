package com.example;

import io.reactivex.Observable;
import io.reactivex.disposables.Disposable;
import io.reactivex.subjects.PublishSubject;
import org.junit.jupiter.api.Test;

/** RxJava issue 4782. */
class RepeatTest {
    /** Lives as long as the application. */
    static final PublishSubject<String> REFRESH = PublishSubject.create();

    @Test
    void aDisposedSubscriptionIsForgotten() {
        Disposable load = Observable.just("tile").repeatWhen(done -> done.switchMap(ignored -> REFRESH)).subscribe();
        load.dispose();
    }
}
