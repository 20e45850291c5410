with source as (

    select * from {{ source('raw', 'customers') }}

)

select
    id as customer_id,
    trim(name) as customer_name,
    upper(country) as country,
    cast(created_at as date) as created_on
from source
