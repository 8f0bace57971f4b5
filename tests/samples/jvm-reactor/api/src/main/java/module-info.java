module com.example.api {
    exports com.example.api;
}
